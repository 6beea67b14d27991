"""The far half of the agent: flat modules, standard library only, Python 3.8 or newer.

Over there this package is called `orch_agent` and comes out of a bundle; here the same files are imported
as `orchestrator.agent.far` by tests and by the controller (framing, path rules). Relative imports only.
"""

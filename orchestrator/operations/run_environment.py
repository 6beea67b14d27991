"""The environment that a launch takes."""

from __future__ import annotations

from orchestrator.agent.client import AgentSession
from orchestrator.inventory.model import Payload, Target
from orchestrator.ledger.run_environment import RunEnvironment, choose_environment
from orchestrator.probes.preflight import Problem


async def environment_for_launch(
    session: AgentSession, target: Target, payload: Payload
) -> tuple[RunEnvironment | None, Problem | None]:
    """What the command runs in, if orch makes that. Raises InventoryError for its lock."""
    if payload.environment is None:
        return None, None
    # With all that building one takes: locks, wheels, trees. Most payloads name their own Python.
    from orchestrator.operations.environment import environment_name, environments_there

    wanted = environment_name(payload.environments[payload.environment])
    found = choose_environment(payload.environment, wanted, await environments_there(session, target))
    return (None, found) if isinstance(found, Problem) else (found, None)

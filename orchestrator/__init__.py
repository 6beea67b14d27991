"""orch: training on GPU containers that are reached through their host. Kept empty so that `orch --help` stays fast."""

__version__ = "0.1.0"

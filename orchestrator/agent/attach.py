"""PURE: the command over there that shows the run's session. No agent: it works without python."""

from __future__ import annotations

from orchestrator.agent.far.session import attach_argv, socket_path
from orchestrator.inventory.model import Target

# tmux's own words for these are cryptic, and without a folder for its socket it even says that all is well.
SCRIPT = """
socket=$1; shift
command -v tmux >/dev/null || { echo "tmux is not installed here; follow the run with: orch logs -f" >&2; exit 7; }
[ -S "$socket" ] && "$@" && exit
echo "no session to attach to: no run was launched, or its session was closed; look with: orch status" >&2
exit 7
"""


def attach_command(target: Target, session: str) -> list[str]:
    return ["sh", "-c", SCRIPT, "sh", socket_path(target.base), *attach_argv(target.base, session)]

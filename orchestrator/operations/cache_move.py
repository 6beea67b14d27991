"""A snapshot of a compile cache from one place that keeps them to another: two agents, and this between them.

This machine is such a place too, with an agent like any target's; so a pull, a push and a copy from one target to
another are one operation, and both ends have the same code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.snapshot_relay import SnapshotRelay
from orchestrator.agent.tree import OnProgress
from orchestrator.agent.tree_push import transfer_error
from orchestrator.errors import OrchError, PreflightError, UsageError
from orchestrator.inventory.model import Host, Target
from orchestrator.ledger.snapshots import LAST_GOOD, choose_seed, parse_snapshots
from orchestrator.operations.ledger import ask_good_runs
from orchestrator.operations.session import agent_session, take_lease, who_asks
from orchestrator.reports.cache import MovedReport
from orchestrator.transport.tracing import Trace

HERE = "this machine"
"""No name that an inventory may give: it holds a blank."""


def this_machine(folder: str | None = None) -> Target:
    """As a place that keeps snapshots: below `<folder>/orch/caches/snapshots`, as on a target whose root that is.
    None or "": the user's data folder (XDG_DATA_HOME, else ~/.local/share)."""
    root = Path(folder or os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser().absolute()
    host = Host(
        name=HERE,
        address=HERE,
        transport="local",
        user=None,
        port=None,
        identity_file=None,
        ssh_config_file=None,
        known_hosts_file=None,
        connect_timeout_s=10.0,
        keepalive_interval_s=15.0,
        keepalive_count=3,
        become="none",
    )
    return Target(
        name=HERE,
        host=host,
        kind="none",
        container_id=None,
        root=str(root),
        python=sys.executable,
        payload=None,
    )


async def move_snapshot(
    source: Target,
    sink: Target,
    wanted: str,
    *,
    new_name: str | None = None,
    on_progress: OnProgress | None = None,
    trace: Trace | None = None,
) -> MovedReport:
    """wanted: a name, its beginning, or last-good, of source; new_name: what it is called at sink; None: the same.

    Raises UsageError, PreflightError (another one has the name, it is damaged), BusyError, TransferError,
    OutcomeUnknownError (repeat it: what has come is kept). Then there is no snapshot of that name at sink.
    """
    if new_name == LAST_GOOD:
        raise UsageError(
            f"a snapshot cannot be named {LAST_GOOD}: that means whichever goes with the last good run",
            way_out="--as ANOTHER-NAME",
        )
    async with agent_session(source, trace) as giving, agent_session(sink, trace) as taking:
        name = await _choose(giving, source, wanted)
        try:
            relay = SnapshotRelay(giving, taking, on_progress)
            manifest = await relay.describe(source.base, name)
            if not await _has(taking, sink, new_name or name, manifest):
                await take_lease(taking, sink)
                moved = {"from": source.name, "name": name}
                await relay.run(sink.base, new_name or name, moved=moved, who=who_asks())
        except AgentOpError as error:
            raise _said(error, source, sink) from error
    return MovedReport(
        source=source.name,
        target=sink.name,
        snapshot=new_name or name,
        bytes=sum(folder["bytes"] for folder in manifest["folders"].values()),
        files=sum(folder["files"] for folder in manifest["folders"].values()),
        contents_sent=relay.contents_sent,
        bytes_sent=relay.bytes_sent,
        linked=relay.linked,
        already_there=relay.already_there,
    )


async def _choose(giving: AgentSession, source: Target, wanted: str) -> str:
    found = parse_snapshots((await giving.request("list_snapshots", base=source.base)).header)
    runs = await ask_good_runs(giving, source) if wanted == LAST_GOOD else ()
    try:
        return choose_seed(wanted, found, runs).name
    except UsageError as error:
        way_out = "orch cache list --here" if source.name == HERE else error.way_out
        raise UsageError(f"{source.name}: {error.what}", evidence=error.evidence, way_out=way_out) from error


async def _has(taking: AgentSession, sink: Target, name: str, manifest: Mapping[str, Any]) -> bool:
    """This very snapshot, by the hash of the list of its files."""
    rows = (await taking.request("list_snapshots", base=sink.base)).header["snapshots"]
    there = {row["name"]: row["manifest"] or {} for row in rows}
    return bool(name in there and there[name].get("files_sha256") == manifest["files_sha256"])


def _said(error: AgentOpError, source: Target, sink: Target) -> OrchError:
    """With the way out that fits."""
    if error.kind in ("damaged", "changed"):
        return PreflightError(
            f"{source.name}: {error.what}",
            evidence=error.evidence or f"{sink.name} has no snapshot of that name",
            way_out="orch cache verify     with --here for the snapshots of this machine",
        )
    if error.kind == "conflict":
        return PreflightError(f"{sink.name}: {error.what}", way_out="the same with --as ANOTHER-NAME")
    if error.kind == "bad_request":
        return UsageError(error.what, way_out="letters, digits, dots, dashes, underscores")
    return transfer_error(sink.name, error)

"""`orch play`: read, plan, take the lock, go on or begin anew, run.

The one door for the command line and for Python.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.inventory.loader import read_text
from orchestrator.inventory.model import Inventory
from orchestrator.ledger.journal import utc_text
from orchestrator.operations.session import who_asks
from orchestrator.playbook.begin import Beginning, choose_beginning
from orchestrator.playbook.model import Playbook
from orchestrator.playbook.plan import Plan, plan_play
from orchestrator.playbook.progress import Progress, read_progress
from orchestrator.playbook.read import read_playbook
from orchestrator.playbook.registry import DOING
from orchestrator.playbook.relations import targets_of
from orchestrator.playbook.run import Play, Watcher
from orchestrator.playbook.store import PlayStore
from orchestrator.transport.tracing import Trace


@dataclass(frozen=True)
class Loaded:
    playbook: Playbook
    inventory: Inventory
    targets: Mapping[str, tuple[str, ...]]
    """Step -> names of its targets."""


def load_playbook(file: Path, inventory: Inventory, variables: Sequence[str] = ()) -> Loaded:
    """variables: `name=value` words. Raises InventoryError for every mistake in the file, UsageError."""
    path = Path(os.path.normpath(Path.cwd() / file.expanduser()))
    playbook = read_playbook(read_text(path, "playbook"), path, variables)
    return Loaded(playbook, inventory, targets_of(playbook, inventory))


def plan(loaded: Loaded, *, start: str | None = None, afresh: bool = False) -> Plan:
    """What would be done now; nothing is asked of any target. Raises what `play` raises before it begins."""
    earlier = read_progress(PlayStore(loaded.playbook.path).latest())
    beginning = choose_beginning(loaded.playbook, loaded.targets, loaded.inventory.path, earlier, start, afresh=afresh)
    return plan_play(loaded.playbook, loaded.inventory, loaded.targets, beginning, earlier)


async def play(
    loaded: Loaded,
    *,
    start: str | None = None,
    afresh: bool = False,
    on_beginning: Callable[[str, Beginning], None] = lambda play_id, beginning: None,
    watcher: Watcher | None = None,
    trace: Trace | None = None,
) -> Progress:
    """Raises BusyError (it is being played), UsageError and OutcomeUnknownError (how to go on is not clear): nothing
    was begun then. A step that fails is told in what comes back."""
    playbook = loaded.playbook
    with PlayStore(playbook.path) as store:
        earlier = read_progress(await asyncio.to_thread(store.latest))
        beginning = choose_beginning(playbook, loaded.targets, loaded.inventory.path, earlier, start, afresh=afresh)
        progress = earlier if beginning.continues else Progress()
        play_id = earlier.play_id if beginning.continues else new_play_id(time.time(), secrets.token_hex(2))
        store.say_holder(f"play {play_id}, {who_asks()}, pid {os.getpid()}, since {utc_text(time.time())}")
        on_beginning(play_id, beginning)
        return await Play(
            playbook=playbook,
            inventory=loaded.inventory,
            targets=loaded.targets,
            play_id=play_id,
            doing=DOING,
            append=store.record(play_id).append,
            progress=progress,
            beginning=beginning,
            who=who_asks(),
            watcher=watcher or Watcher(),
            trace=trace,
        ).run()


def new_play_id(now_s: float, token: str) -> str:
    """Sorts by time, also within a second of the same controller."""
    return f"{datetime.fromtimestamp(now_s, UTC):%Y%m%d-%H%M%S%f}"[:-3] + f"-{token}"

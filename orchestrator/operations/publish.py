"""Publish what a run has made: an exported drafter or a checkpoint, to a folder, another target or an object store.

Rule: `current` changes last, in one step, after every byte over there was read again. Whatever fails before leaves
the published one as it was; the same command again goes on from what has arrived.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.tree import OnProgress, pull_tree, scan_folder
from orchestrator.agent.tree_remote import LEFT_OUT, RemoteTree, scan_remote
from orchestrator.errors import BusyError, OrchError, PreflightError, TransferError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.publications import KEEP, Shelved, choose_publication
from orchestrator.operations.session import agent_session, who_asks
from orchestrator.operations.shelf import Shelf, open_shelf
from orchestrator.operations.where import Where, published_meanwhile
from orchestrator.operations.which_run import facts_of_run
from orchestrator.probes.values import as_mapping
from orchestrator.reports.publish import PublishReport, SwitchReport
from orchestrator.transport.tracing import Trace
from remote_payload import contract


@dataclass(frozen=True)
class _Found:
    """What is to be published, as it lies on the target."""

    run_id: str
    step: int | None
    folder: str
    provenance: Mapping[str, object]
    tree_hash: str
    files: int
    size_bytes: int


async def publish(
    target: Target,
    wanted: str | None,
    where: Where,
    *,
    keep: int = KEEP,
    only_instead_of: Sequence[str | None] | None = None,
    on_progress: OnProgress | None = None,
    trace: Trace | None = None,
) -> PublishReport:
    """wanted: RUN (its export), RUN:STEP (a checkpoint) or None (the last run's export); `last` is the last run.
    only_instead_of: tree hashes that it may replace (None: where nothing is published); without, any.

    Raises UsageError, PreflightError (what is there is not whole), BusyError, TransferError, AuthError,
    UnreachableError; in each case the published one stays. NotAsWantedError: what arrived is not what was sent, or
    another one was published meanwhile.
    """
    if keep < 1:
        raise UsageError("--keep takes 1 or more: the current one always stays", way_out="--keep 5")
    with _one_at_a_time(where) as staging:
        async with agent_session(target, trace) as session, open_shelf(where, trace) as shelf:
            before = await shelf.look()  # a store that cannot be reached is told before anything travels
            found = await _find(session, target, wanted)
            expected = None if only_instead_of is None else (*only_instead_of, found.tree_hash)
            if expected is not None and before.current not in expected:
                raise published_meanwhile(where, before.current)
            sent = 0
            if before.find(found.tree_hash) is None:
                sent = await _bring(session, shelf, found, staging, on_progress)
            await shelf.switch(found.tree_hash, expected)
            removed, note = await _prune(shelf, keep)
        shutil.rmtree(staging, ignore_errors=True)
    return PublishReport(
        where=where.text,
        target=target.name,
        run_id=found.run_id,
        step=found.step,
        tree_hash=found.tree_hash,
        files=found.files,
        size_bytes=found.size_bytes,
        bytes_sent=sent,
        replaced=before.find(before.current),
        replaced_hash=before.current,
        removed=removed,
        note=note,
        result=as_mapping(found.provenance.get("result")),
    )


async def published(where: Where, *, trace: Trace | None = None) -> Shelved:
    """What there is. A place that does not exist yet is empty."""
    async with open_shelf(where, trace) as shelf:
        return await shelf.look()


async def switch_published(where: Where, wanted: str | None, *, trace: Trace | None = None) -> SwitchReport:
    """wanted: a tree hash or its beginning, or a run; None: the one before. Raises UsageError listing what there is."""
    with _one_at_a_time(where):
        async with open_shelf(where, trace) as shelf:
            there = await shelf.look()
            chosen = choose_publication(there, wanted)
            await shelf.switch(chosen.tree_hash)
    return SwitchReport(where.text, chosen, there.find(there.current), there.current)


async def _bring(
    session: AgentSession, shelf: Shelf, found: _Found, staging: Path, on_progress: OnProgress | None
) -> int:
    """Through a folder of this machine, which a next try goes on from."""
    folder = staging / found.tree_hash
    await asyncio.to_thread(_clear, staging, found.tree_hash)
    await pull_tree(session, found.folder, folder, exclude=LEFT_OUT, on_progress=on_progress)
    source = await asyncio.to_thread(scan_folder, folder)
    if source.tree_hash != found.tree_hash:
        shutil.rmtree(folder, ignore_errors=True)
        raise TransferError(
            f"{found.folder} changed while it was read; nothing was published",
            way_out="orch publish again once nothing writes there",
        )
    return await shelf.put(folder, source, found.provenance, on_progress)


def _clear(staging: Path, but: str) -> None:
    """What tries that were never repeated left here."""
    for other in staging.iterdir():
        if not other.name.startswith(but):
            shutil.rmtree(other, ignore_errors=True)


async def _prune(shelf: Shelf, keep: int) -> tuple[tuple[str, ...], str]:
    """The new one is current: what fails here is no failure of publishing."""
    try:
        return await shelf.prune(keep), ""
    except OrchError as error:
        return (), f"older ones were not removed: {error.what}"


async def _find(session: AgentSession, target: Target, wanted: str | None) -> _Found:
    run_id, _, step_text = (wanted or "last").partition(":")
    if step_text and not step_text.isdecimal():
        raise UsageError(f"publish takes RUN or RUN:STEP, not {wanted!r}", way_out="orch runs")
    state = await facts_of_run(session, target, run_id)
    run = state["run"]
    live = state["live"]["held"] and (state["live"]["content"] or {}).get("run_id") == run["id"]
    step = int(step_text) if step_text else None
    if step is None:
        _require_ended(run, live=live)
        folder, kind, result = f"{run['folder']}/{contract.EXPORT}", "export", run["result"]
    else:
        name = f"step-{step}"
        if name not in [one["name"] for one in run["checkpoints"] if one["complete"]]:
            raise _lacks(run, f"run {run['id']} has no complete checkpoint of step {step}")
        folder, kind = f"{run['folder']}/{contract.CHECKPOINTS}/{name}", "checkpoint"
        result = await _small_record(session, f"{folder}/checkpoint.json")
    await _require_whole(session, run, folder)
    tree = await _scan(session, folder)
    return _Found(
        run_id=run["id"],
        step=step,
        folder=folder,
        provenance={
            "kind": kind,
            "run_id": run["id"],
            "step": step,
            "target": target.name,
            "folder": folder,
            "release": str((run["spec"] or {}).get("release") or "").rpartition("/")[2] or None,
            "result": result if isinstance(result, dict) else None,
            "published_by": who_asks(),
            "published_at_s": time.time(),
            "orch": __version__,
            "git": None,
        },
        tree_hash=tree.tree_hash,
        files=tree.files,
        size_bytes=tree.size_bytes,
    )


def _require_ended(run: Mapping[str, Any], *, live: bool) -> None:
    """An export is there as a whole once the training has ended well. Raises PreflightError."""
    exit_record = run["exit"] or {}
    if not live and exit_record.get("exit_code") == 0:
        return
    if live:
        how = "is still running"
    elif run["exit"] is None:
        how = "ended, and nobody knows how"
    else:
        how = f"ended with exit code {exit_record.get('exit_code')}"
    raise _lacks(run, f"run {run['id']} {how}, so its export is not published")


async def _require_whole(session: AgentSession, run: Mapping[str, Any], folder: str) -> None:
    try:
        told = (await session.request("model_check", timeout_s=120.0, path=folder)).header
    except AgentOpError as error:
        raise _lacks(run, f"run {run['id']}: {error.what}") from error
    if told["problems"]:
        raise _lacks(run, f"{folder} is not whole; nothing was published", "\n".join(told["problems"][:10]))


def _lacks(run: Mapping[str, Any], what: str, evidence: str = "") -> PreflightError:
    steps = [one["name"].removeprefix("step-") for one in run["checkpoints"] if one["complete"]]
    way_out = f"orch publish {run['id']}:{steps[-1]} --to WHERE   (a checkpoint)" if steps else "orch status"
    told = [evidence] if evidence else []
    return PreflightError(
        what, evidence="\n".join([*told, f"complete checkpoints: {', '.join(steps) or 'none'}"]), way_out=way_out
    )


async def _scan(session: AgentSession, folder: str) -> RemoteTree:
    tree = await scan_remote(session, folder)
    if tree.links or tree.odd:
        raise TransferError(
            f"{session.label}: {folder} holds what cannot be published",
            evidence="links, sockets or FIFOs: " + ", ".join([*tree.links, *tree.odd][:10]),
            way_out="publish files only",
        )
    return tree


async def _small_record(session: AgentSession, path: str) -> object:
    import json

    try:
        reply = await session.request("read_file", path=path, limit=64 * 1024)
        return json.loads(reply.body)
    except (AgentOpError, ValueError):
        return None


@contextmanager
def _one_at_a_time(where: Where) -> Iterator[Path]:
    """Yields the staging folder of this place. Raises BusyError, OrchError."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(given) if given.startswith("/") else Path.home() / ".cache"
    name = hashlib.sha256(where.text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    staging = home / "orch" / "publish" / name
    try:
        staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(staging.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OrchError(
            f"{staging} cannot be made, where what is published is put together",
            evidence=str(error),
            way_out="set XDG_CACHE_HOME to a folder that you may write to",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"another orch on this machine is publishing to {where.text}", way_out="wait for it to end"
            ) from error
        yield staging
    finally:
        os.close(handle)

"""Two runs of a target, or a run and the target as it is now, asked for and compared. Over a session of `diff`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.local_code import commits_between, local_contents
from orchestrator.diagnosis.code import (
    FileChange,
    LineDiff,
    changed_files,
    commit_of,
    line_diff,
    release_path,
)
from orchestrator.diagnosis.comparable import cache_of, comparable_facts
from orchestrator.diagnosis.diff import compare
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.fingerprint import identity_hash
from orchestrator.ledger.runs import RunSummary, Shape, choose_run, last_good, shape_of
from orchestrator.operations.ledger import all_runs, least_per_s
from orchestrator.operations.run_files import read_json
from orchestrator.operations.session import require_payload
from orchestrator.reports.diff import DiffReport, Side
from remote_payload import contract

LAST_GOOD, LATEST, NOW = "last-good", "latest", "now"
MAX_FILES = 50
MAX_WANTED = 48
"""Contents asked for at once: a reply holds so many of the largest that are told."""


@dataclass(frozen=True)
class _Found:
    side: Side
    record: Mapping[str, Any]
    """fingerprint.json"""
    runtime: Mapping[str, Any] | None


@dataclass(frozen=True)
class Answers:
    """What the target said."""

    a: _Found
    b: _Found
    changes: tuple[FileChange, ...]
    contents: Mapping[str, bytes]
    """sha256 -> content, of those that the target still has."""


async def ask_sides(
    session: AgentSession, target: Target, words: Sequence[str], config: Awaitable[dict[str, str] | None] | None
) -> Answers:
    """config: for the target as it is now. Raises UsageError when there are no such runs, or one has no fingerprint."""
    sides = choose_sides(await all_runs(session, target), words, target)
    a, b = await asyncio.gather(*(_look(session, target, side, config) for side in sides))
    changes = changed_files(a.record, b.record)
    return Answers(a, b, tuple(changes), await _contents(session, target, changes[:MAX_FILES], a, b))


async def report_of(target: Target, told: Answers) -> DiffReport:
    """With what this machine knows of the files and the commits."""
    a, b, changes, contents = told.a, told.b, told.changes, dict(told.contents)
    commits, folder = [commit_of(found.record) for found in (a, b)], target.payload.folder if target.payload else None
    known = [commit for commit in commits if commit]
    wanted = {sha256: change.path for change in changes[:MAX_FILES] for sha256 in change.hashes if sha256}
    missing = {sha256: path for sha256, path in wanted.items() if sha256 not in contents}
    between: tuple[str, ...] | None = None
    if folder is not None:
        contents |= await asyncio.to_thread(local_contents, folder, missing, known)
        if len(known) == 2 and known[0] != known[1]:
            between = await asyncio.to_thread(commits_between, folder, known[0], known[1])
    return DiffReport(
        target=target.name,
        label=target.label,
        a=a.side,
        b=b.side,
        comparison=compare(
            comparable_facts(a.record, a.runtime),
            comparable_facts(b.record, b.runtime),
            cache_of(a.record),
            cache_of(b.record),
        ),
        files=tuple(_line_diffs(changes, contents)),
        commits=between,
    )


def choose_sides(runs: Sequence[RunSummary], words: Sequence[str], target: Target) -> tuple[Side, Side]:
    """Raises UsageError naming what there is."""
    if len(words) > 2:
        raise UsageError(
            f"`orch diff` compares two, and {len(words)} were named", evidence=" ".join(words), way_out="orch diff A B"
        )
    if len(words) == 1:
        # `orch diff now`: what is different now; `orch diff RUN`: what is different since.
        words = [LAST_GOOD, *words] if words[0] in (NOW, LATEST, "last") else [*words, LATEST]
    first, second = words or (LAST_GOOD, LATEST)
    if second == LAST_GOOD:
        return _side(runs, first, None, target), _good(runs, None, target)
    b = _side(runs, second, None, target)
    return _side(runs, first, b.summary, target), b


def _side(runs: Sequence[RunSummary], wanted: str, other: RunSummary | None, target: Target) -> Side:
    """other: the run that it is compared with; None: the target as it is now."""
    by_id = {run.run_id: run for run in runs}
    if wanted == NOW:
        return Side(NOW, None, "", None, None)
    if wanted == LAST_GOOD:
        return _good(runs, other, target)
    run_id = choose_run(list(by_id), wanted)
    run = by_id[run_id]
    mark = f", marked {run.mark.verdict}" if run.mark else ""
    return Side(LATEST if wanted in (LATEST, "last") else "", run_id, run.outcome + mark, run, None)


def _good(runs: Sequence[RunSummary], other: RunSummary | None, target: Target) -> Side:
    """The last good one before the other run and of its shape; else, and it says so, of another topology: that is then
    what differs first."""
    like, before = (other.shape, other.run_id) if other else (shape_of(target), None)
    found = last_good(runs, like, before=before, least_per_s=least_per_s(target))
    if found is not None:
        return Side("last good", found.run_id, found.why, found.run, None)
    found = last_good(runs, Shape(like.payload), before=before)
    if found is not None:
        why = f"{found.why}, and of another topology: {found.run.shape.text}; none of {like.text} was good"
        return Side("last good", found.run_id, why, found.run, None)
    raise UsageError(
        f"there is no good run of {like.text}" + (f" before {before}" if before else "") + " to compare with",
        evidence=", ".join(f"{run.run_id}: {run.outcome}" for run in runs[-5:]) or "there are no runs yet",
        way_out="orch runs mark RUN good   to say which one was\norch diff RUN RUN          to compare any two",
    )


async def _look(
    session: AgentSession, target: Target, side: Side, config: Awaitable[dict[str, str] | None] | None
) -> _Found:
    if side.run_id is None:
        assert config is not None
        from orchestrator.operations.identity import ask_identity

        record = await ask_identity(session, target, require_payload(target), config)
        return _Found(_with_identity(side, record), record, None)
    folder = f"{target.base}/runs/{side.run_id}"
    told, runtime = await asyncio.gather(
        read_json(session, f"{folder}/{contract.FINGERPRINT}"), read_json(session, f"{folder}/{contract.RUNTIME}")
    )
    if told is None:
        raise UsageError(
            f"run {side.run_id} has no fingerprint; nothing can be compared",
            evidence=f"{folder}/{contract.FINGERPRINT} is not there, or cannot be read",
            way_out="orch runs\norch diff RUN RUN          two that have one",
        )
    return _Found(_with_identity(side, told), told, runtime)


def _with_identity(side: Side, record: Mapping[str, Any]) -> Side:
    return Side(side.name, side.run_id, side.why, side.summary, identity_hash(record))


async def _contents(
    session: AgentSession, target: Target, changes: Sequence[FileChange], a: _Found, b: _Found
) -> dict[str, bytes]:
    """sha256 -> bytes, of those that the target still has."""
    wanted = sorted({sha256 for change in changes for sha256 in change.hashes if sha256})
    if not wanted:
        return {}
    folders = {path for found in (a, b) if (path := release_path(found.record))}
    paths = [f"{folder}/{change.path}" for change in changes for folder in sorted(folders)]
    paths += [change.path for change in changes if change.path.startswith("/")]
    found: dict[str, bytes] = {}
    for start in range(0, len(wanted), MAX_WANTED):
        some = wanted[start : start + MAX_WANTED]
        reply = await session.request("file_contents", base=target.base, wanted=some, paths=paths, timeout_s=60.0)
        at = 0
        for sha256, size in reply.header["found"]:
            found[str(sha256)] = reply.body[at : at + size]
            at += size
    return found


def _line_diffs(changes: Sequence[FileChange], contents: Mapping[str, bytes]) -> list[LineDiff]:
    found = [line_diff(change, contents) for change in changes[:MAX_FILES]]
    return found + [LineDiff(change, (), f"only {MAX_FILES} files are compared") for change in changes[MAX_FILES:]]

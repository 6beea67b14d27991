"""Which wheels an environment is made of: looked for in folders, fetched when they are not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.tree import TreeSource
from orchestrator.agent.wheels import (
    UV_LOCK,
    Wheel,
    cache_folder,
    fetch,
    read_lock_text,
    read_wheel,
    wheel_names,
    wheel_tree,
)
from orchestrator.errors import PreflightError, TransferError
from orchestrator.ledger.lock import Lock, Requirement, choose_wheel, parse_lock
from orchestrator.probes.interpreter import Interpreter

MAX_SAID = 600
SHOWN_FAILURES = 5
FETCHES = 4
"""At once: each is a pip of its own, so that what one has brought stays when another fails."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wheels:
    tree: TreeSource
    """lock.txt, wheels/, uv/: what env_build works with."""
    requirements: tuple[Requirement, ...]
    """Of the lock, what belongs on this target."""
    size_bytes: int
    uv_version: str


def uv_lock() -> Lock:
    return parse_lock(read_lock_text(UV_LOCK), str(UV_LOCK))


async def find_wheels(
    lock: Lock, interpreter: Interpreter, uv: Lock, folder: Path | None, indexes: Sequence[str], say: Say
) -> Wheels:
    """folder: where all of them must be; None: the user's cache, into which what is missing is fetched.

    Raises TransferError, PreflightError."""
    wanted = lock.wanted(interpreter)
    tool = uv.wanted(interpreter)
    if not wanted:
        raise PreflightError(f"{lock.file} asks for nothing on {interpreter.markers.get('platform_machine')}")
    found = dict(await _find(wanted, interpreter, folder, indexes, say))
    try:
        found.update(await _find(tool, interpreter, folder, indexes, say))
    except TransferError:
        if folder is not None or not indexes:
            raise
        # An index of torch's builds has no uv; one inside a company may have all that can be reached.
        found.update(await _find(tool, interpreter, folder, (), say))
    files = {f"wheels/{found[one].path.name}": found[one] for one in wanted}
    files.update({f"uv/{found[one].path.name}": found[one] for one in tool})
    tree = wheel_tree(lock.file, files, {"lock.txt": lock.text().encode("utf-8")})
    return Wheels(tree, wanted, sum(found[one].size_bytes for one in wanted), tool[0].version)


async def _find(
    wanted: Sequence[Requirement], interpreter: Interpreter, folder: Path | None, indexes: Sequence[str], say: Say
) -> Mapping[Requirement, Wheel]:
    where = folder if folder is not None else cache_folder()
    found = await asyncio.to_thread(_look, wanted, interpreter, where)
    missing = [one for one in wanted if one not in found]
    if missing and folder is None:
        await _fetch(missing, interpreter, where, indexes, say)
        found.update(await asyncio.to_thread(_look, missing, interpreter, where))
        missing = [one for one in wanted if one not in found]
    if missing:
        raise TransferError(
            f"{where} lacks {len(missing)} of {len(wanted)} wheels; nothing over there was touched",
            evidence="\n".join(_why_not(one, where, interpreter) for one in missing[:20]),
            way_out="put them there, or let orch fetch them: orch env sync without --wheels" if folder else "",
        )
    return found


async def _fetch(
    wanted: Sequence[Requirement], interpreter: Interpreter, folder: Path, indexes: Sequence[str], say: Say
) -> None:
    """Raises TransferError for what cannot be had; the rest is in the folder then."""
    places = asyncio.Semaphore(FETCHES)
    failures: list[str] = []
    begun = 0

    async def one(requirement: Requirement) -> None:
        nonlocal begun
        async with places:
            begun += 1
            say(f"fetching {begun} of {len(wanted)}: {requirement.name} {requirement.version}")
            python = "{}.{}".format(*interpreter.version_numbers)
            said = await fetch(requirement.line(), interpreter.platforms, python, indexes, folder)
            if said is not None:
                failures.append(f"{requirement.name} {requirement.version}: {said[-MAX_SAID:]}")

    async with asyncio.TaskGroup() as group:
        for requirement in wanted:
            group.create_task(one(requirement))
    if failures:
        raise TransferError(
            f"{len(failures)} of {len(wanted)} wheels could not be fetched; nothing over there was touched",
            evidence="\n".join(failures[:SHOWN_FAILURES]),
            way_out="name the index that has them: orch env sync --index URL\n"
            "without a network, give a folder of wheels: orch env sync --wheels FOLDER",
        )


def _look(wanted: Sequence[Requirement], interpreter: Interpreter, folder: Path) -> dict[Requirement, Wheel]:
    """Blocks."""
    names = wheel_names(folder)
    found = {}
    for one in wanted:
        for name in choose_wheel(one, names, interpreter):
            wheel = read_wheel(folder / name)
            if wheel.sha256 in one.hashes:
                found[one] = wheel
                break
    return found


def _why_not(one: Requirement, folder: Path, interpreter: Interpreter) -> str:
    fitting = choose_wheel(one, wheel_names(folder), interpreter)
    if fitting:
        return f"{one.name} {one.version}: {fitting[0]} is not what the lock's sha256 says"
    return f"{one.name} {one.version}: no wheel for Python {interpreter.version} on {interpreter.platforms[0]}"

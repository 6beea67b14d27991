"""Do one thing on several targets at once; one that fails never hides the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orchestrator.cli.output import Output
from orchestrator.errors import OrchError
from orchestrator.inventory.model import Target

R = TypeVar("R")


def for_each(
    targets: Sequence[Target], work: Callable[[Target], Awaitable[R]], show: Callable[[R], int], output: Output
) -> int:
    """Run work on every target, show each result as it comes. The exit code is the highest of all."""
    if len(targets) == 1:
        return show(asyncio.run(_await(work(targets[0]))))

    async def one(target: Target) -> int:
        try:
            return show(await work(target))
        except OrchError as error:
            output.note(f"{target.name}:")
            output.error(error)
            return error.exit_code

    async def all_of_them() -> int:
        return max(await asyncio.gather(*(one(target) for target in targets)))

    return asyncio.run(all_of_them())


async def _await(work: Awaitable[R]) -> R:
    return await work

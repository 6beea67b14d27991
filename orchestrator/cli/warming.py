"""What `orch launch` and `orch warmup` share: the words that seed, and a warm-up as it is told."""

from __future__ import annotations

import argparse

from orchestrator.cli.output import Output
from orchestrator.cli.waiting import WaitDisplay
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.operations.launch import LaunchRequest, Seeding
from orchestrator.operations.warmup import proven_by, require_warm, warm_up
from orchestrator.reports.launch import LaunchReport, render_started
from orchestrator.reports.warmup import WarmupPass, WarmupReport, pass_text


def seeding_of(arguments: argparse.Namespace, command: str) -> Seeding | None:
    """Raises UsageError."""
    if arguments.seed is not None:
        return Seeding(arguments.seed, arguments.replace, arguments.force)
    if arguments.replace or arguments.force:
        raise UsageError("--replace and --force go with --seed", way_out=f"orch {command} --seed last-good --replace")
    return None


async def warmed(target: Target, request: LaunchRequest, output: Output, display: WaitDisplay) -> WarmupReport:
    """Tells on stderr how it goes."""

    def started(report: LaunchReport) -> None:
        output.note(render_started(report))
        output.still_running = f"The warm-up {report.run_id} goes on: `orch status` to look, `orch stop` to end it."

    def passed(one: WarmupPass) -> None:
        display.finish()
        output.note(f"{target.name}: {pass_text(one)}")

    show = display.for_target(target.name)
    return await warm_up(target, request, on_started=started, on_status=show, on_pass=passed, trace=output.trace)


async def warm_if_needed(target: Target, request: LaunchRequest, output: Output, display: WaitDisplay) -> None:
    """Raises NotAsWantedError."""
    if request.seed is None:
        run_id = await proven_by(target, request, trace=output.trace)
        if run_id is not None:
            output.note(f"{target.name}: warm: run {run_id} found everything, and the cache is as it left it")
            return
    require_warm(await warmed(target, request, output, display))

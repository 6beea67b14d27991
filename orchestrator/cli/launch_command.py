"""orch launch: start a run; with --wait, come back when it got somewhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.cli.waiting import WaitDisplay
from orchestrator.cli.warming import seeding_of, warm_if_needed
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.ledger.runspec import parse_settings
from orchestrator.operations.launch import LaunchRequest, launch
from orchestrator.operations.launch_wait import parse_condition
from orchestrator.reports.launch import LaunchReport, render_started, render_waited


def run(arguments: argparse.Namespace, output: Output) -> int:
    request = request_of(arguments)
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    if arguments.attach:
        # Before anything is started: what cannot be done afterwards is not begun.
        require_attachable(targets)
    output.still_running = "Nothing was started, as far as is known: `orch status` tells."
    display = WaitDisplay(output, labelled=len(targets) > 1)

    async def work(target: Target) -> LaunchReport:
        return await launch_on(target, request, output, display, warm=arguments.warm)

    ended = []

    def show(report: LaunchReport) -> int:
        ended.append(report.waited is not None and report.ended is not None)
        display.finish()
        if report.waited is not None:
            output.result(render_waited(report))
        return 0

    code = for_each(targets, work, show, output)
    if code == 0 and arguments.attach:
        from orchestrator.cli.attach_command import attach

        return attach(targets[0], output)
    if code == 0:
        output.next_step("orch pull" if all(ended) else "orch status   (or: orch logs -f)")
    return code


def request_of(arguments: argparse.Namespace) -> LaunchRequest:
    """Raises UsageError."""
    request = LaunchRequest(
        settings=parse_settings(arguments.settings),
        wait=parse_condition(arguments.wait) if arguments.wait else None,
        timeout_s=arguments.timeout,
        resume=arguments.resume,
        seed=seeding_of(arguments, "launch"),
    )
    if arguments.timeout is not None and request.wait is None:
        raise UsageError("--timeout says how long to wait, but there is no --wait", way_out="orch launch --wait end")
    loose = [word for word in arguments.targets if "=" in word]
    if loose:
        settings = " ".join(f"--set {word}" for word in [*arguments.settings, *loose])
        raise UsageError(f"`{loose[0]}` stands where a target is expected", way_out=f"orch launch {settings}")
    return request


def require_attachable(targets: Sequence[Target]) -> None:
    """Raises UsageError unless it is one target, with a session, and there is a terminal."""
    if len(targets) != 1:
        raise UsageError(
            f"--attach takes one target, and these are {len(targets)}",
            evidence="\n".join(target.label for target in targets),
            way_out=f"orch launch {targets[0].name} --attach",
        )
    from orchestrator.cli.attach_command import require_session
    from orchestrator.cli.interactive import require_terminal

    require_session(targets[0])
    require_terminal()


async def launch_on(
    target: Target, request: LaunchRequest, output: Output, display: WaitDisplay, *, warm: bool
) -> LaunchReport:
    """What Ctrl-C says is left running is kept true as it goes."""

    def starting() -> None:
        output.still_running = (
            f"A run may have been started on {target.name}, and then goes on: `orch status` to look, "
            "`orch stop` to end it."
        )

    def started(report: LaunchReport) -> None:
        output.result(render_started(report))
        output.still_running = f"The run {report.run_id} goes on: `orch status` to look, `orch stop` to end it."

    if warm:
        await warm_if_needed(target, request, output, display)
        request = replace(request, seed=None)  # the warm-up has seeded
    return await launch(
        target,
        request,
        on_starting=starting,
        on_started=started,
        on_status=display.for_target(target.name),
        trace=output.trace,
    )

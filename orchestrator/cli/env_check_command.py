"""orch env check, orch env baseline: is the environment what it should be?"""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.errors import NotAsWantedError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target, select_targets
from orchestrator.ledger.run_environment import REBUILD
from orchestrator.operations.environment_check import CheckRequest, check, record_baseline
from orchestrator.probes.environment_finding import ERROR
from orchestrator.reports.environment_check import CheckReport, check_record, render_baseline, render_check


def check_targets(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    request = CheckRequest(
        arguments.purpose, arguments.python, "newer" if arguments.quick else "all", arguments.deadline
    )

    async def work(target: Target) -> CheckReport:
        return await check(target, request, trace=output.trace)

    def show(report: CheckReport) -> int:
        output.result(json.dumps(check_record(report)) if arguments.json else render_check(report))
        if report.passed:
            return 0
        wrong = [finding for finding in report.findings if finding.severity == ERROR]
        by_lock = report.expected is not None and report.expected.kind == "lock"
        raise NotAsWantedError(
            f"{report.target}: the environment is not as it should be ({len(wrong)} wrong)",
            evidence="\n".join(finding.text for finding in wrong[:5]),
            way_out="\n".join(_ways_out(by_lock, wrong[0].way_out)) or "see above",
        )

    return for_each(targets, work, show, output)


def _ways_out(by_lock: bool, of_first: str) -> list[str]:
    ways = [REBUILD] if by_lock else []
    return [*ways, of_first] if of_first and not any(way.startswith(of_first) for way in ways) else ways


def baseline(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.result(render_baseline(asyncio.run(record_baseline(target, arguments.python, trace=output.trace))))
    output.next_step("orch env check")
    return 0

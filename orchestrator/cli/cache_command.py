"""orch cache: the compile cache of a target and its snapshots."""

from __future__ import annotations

import argparse
import json

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.cache import list_kept, show_cache
from orchestrator.probes.text import plain_text
from orchestrator.reports.cache import (
    CacheReport,
    SnapshotsReport,
    cache_record,
    render_cache,
    render_snapshots,
    snapshots_record,
)


def run(arguments: argparse.Namespace, output: Output) -> int:
    verbs = {"show": _show, "list": _list}
    return verbs[arguments.cache_verb](arguments, output)


def _show(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> CacheReport:
        return await show_cache(target, trace=output.trace)

    def show(report: CacheReport) -> int:
        text = json.dumps(cache_record(report)) if arguments.json else plain_text(render_cache(report))
        output.result(text)
        return 0

    return for_each(targets, work, show, output)


def _list(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> SnapshotsReport:
        return await list_kept(target, trace=output.trace)

    def show(report: SnapshotsReport) -> int:
        text = json.dumps(snapshots_record(report)) if arguments.json else plain_text(render_snapshots(report))
        output.result(text)
        return 0

    return for_each(targets, work, show, output)

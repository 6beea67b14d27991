"""orch cache: the compile cache of a target and its snapshots."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.cli.progress import transfer_progress
from orchestrator.errors import NotAsWantedError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target, select_targets
from orchestrator.operations.cache import list_kept, show_cache
from orchestrator.operations.cache_change import (
    clear_cache,
    drop_older,
    drop_snapshot,
    save_cache,
    seed_cache,
    verify_snapshots,
)
from orchestrator.operations.cache_move import move_snapshot, this_machine
from orchestrator.reports.cache import (
    SCHEMA,
    CacheReport,
    SnapshotsReport,
    cache_record,
    done_record,
    render_cache,
    render_cleared,
    render_moved,
    render_saved,
    render_seeded,
    render_snapshots,
    render_verified,
    snapshots_record,
)
from orchestrator.transport.local import is_folder


def run(arguments: argparse.Namespace, output: Output) -> int:
    verbs = {
        "show": _show,
        "list": _list,
        "save": _save,
        "verify": _verify,
        "seed": _seed,
        "clear": _clear,
        "drop": _drop,
        "pull": _pull,
        "push": _push,
    }
    return verbs[arguments.cache_verb](arguments, output)


def _show(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> CacheReport:
        return await show_cache(target, trace=output.trace)

    def show(report: CacheReport) -> int:
        text = json.dumps(cache_record(report)) if arguments.json else render_cache(report)
        output.result(text)
        return 0

    return for_each(targets, work, show, output)


def _list(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.here is not None and arguments.targets:
        raise UsageError(
            "orch cache list takes either targets or --here",
            evidence="--here lists the snapshots that are kept on this machine",
            way_out="orch cache list --here=FOLDER",
        )
    targets = _here_or(arguments, lambda: select_targets(load_inventory(arguments.inventory), arguments.targets))

    async def work(target: Target) -> SnapshotsReport:
        return await list_kept(target, trace=output.trace)

    def show(report: SnapshotsReport) -> int:
        text = json.dumps(snapshots_record(report)) if arguments.json else render_snapshots(report)
        output.result(text)
        return 0

    return for_each(targets, work, show, output)


def _save(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = "What was half copied is no snapshot; the next save removes it."
    report = asyncio.run(save_cache(target, arguments.name, trace=output.trace))
    output.result(json.dumps(done_record("save", report)) if arguments.json else render_saved(report))
    output.next_step("orch cache list")
    return 0


def _verify(arguments: argparse.Namespace, output: Output) -> int:
    names = arguments.names or list(filter(None, [_name_after_here(arguments)]))
    (target,) = _here_or(arguments, lambda: (_one(arguments),))
    report = asyncio.run(verify_snapshots(target, names, trace=output.trace))
    text = json.dumps(done_record("verify", report)) if arguments.json else render_verified(report)
    output.result(text)
    if not report.whole:
        wrong = [f"{name}/{path}" for name, paths in report.damaged.items() for path in paths]
        raise NotAsWantedError(
            f"snapshots of {target.name} are damaged",
            evidence="\n".join([*report.broken, *wrong][:20]),
            way_out="orch cache drop NAME     a damaged one is never seeded from",
        )
    return 0


def _seed(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = "The cache is the old one, or the next launch or cache command makes it the new one."
    work = seed_cache(target, arguments.name, replace=arguments.replace, force=arguments.force, trace=output.trace)
    report = asyncio.run(work)
    output.result(json.dumps(done_record("seed", report)) if arguments.json else render_seeded(report))
    output.next_step("orch launch")
    return 0


def _clear(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = "Nothing is lost; the next clear finishes it."
    report = asyncio.run(clear_cache(target, trace=output.trace))
    output.result(json.dumps(done_record("clear", report)) if arguments.json else render_cleared(report))
    output.next_step("orch cache list")
    return 0


def _drop(arguments: argparse.Namespace, output: Output) -> int:
    limited = arguments.keep is not None or arguments.max_gb is not None
    if arguments.name is None and not limited:
        arguments.name = _name_after_here(arguments)
    if (arguments.name is not None) == limited or (arguments.dry_run and not limited):
        raise UsageError(
            "orch cache drop takes either one snapshot, or --keep or --max-gb; --dry-run goes with these two",
            way_out="orch cache list\norch cache drop --keep 10 --dry-run",
        )
    (target,) = _here_or(arguments, lambda: (_one(arguments),))
    output.still_running = "What was begun to be removed is no snapshot any more."
    if limited:
        max_bytes = None if arguments.max_gb is None else int(arguments.max_gb * 1e9)
        work = drop_older(
            target, keep=arguments.keep, max_bytes=max_bytes, dry_run=arguments.dry_run, trace=output.trace
        )
        names = asyncio.run(work)
    else:
        names = (asyncio.run(drop_snapshot(target, arguments.name, force=arguments.force, trace=output.trace)),)
    record = {"schema": SCHEMA, "what": "drop", "target": target.name, "snapshots": list(names)}
    verb = "would drop" if arguments.dry_run else "dropped"
    text = f"{target.name}: {verb} {', '.join(names) or 'nothing'}"
    output.result(json.dumps({**record, "dry_run": arguments.dry_run}) if arguments.json else text)
    return 0


def _pull(arguments: argparse.Namespace, output: Output) -> int:
    return _move(arguments, output, _one(arguments), this_machine(arguments.to))


def _push(arguments: argparse.Namespace, output: Output) -> int:
    source = arguments.source
    if source is None or "/" in source:
        giving = this_machine(source)
    else:
        giving = select_one_target(load_inventory(arguments.inventory), source)
    code = _move(arguments, output, giving, _one(arguments))
    output.next_step("orch cache list")
    return code


def _move(arguments: argparse.Namespace, output: Output, source: Target, sink: Target) -> int:
    output.still_running = "What has come so far is kept; the same command again sends only the rest."
    with transfer_progress(sink.name, shown=not arguments.json) as on_progress:
        report = asyncio.run(
            move_snapshot(
                source,
                sink,
                arguments.name,
                new_name=arguments.new_name,
                on_progress=on_progress,
                trace=output.trace,
            )
        )
    output.result(json.dumps(done_record(arguments.cache_verb, report)) if arguments.json else render_moved(report))
    return 0


def _one(arguments: argparse.Namespace) -> Target:
    return select_one_target(load_inventory(arguments.inventory), arguments.target)


def _here_or(arguments: argparse.Namespace, select: Callable[[], tuple[Target, ...]]) -> tuple[Target, ...]:
    if arguments.here is None:
        return select()
    if arguments.here and not is_folder(arguments.here):
        raise UsageError(
            f"there is no folder {arguments.here}",
            way_out="name the FOLDER of `orch cache pull NAME --to FOLDER`; without it: your data folder",
        )
    return (this_machine(arguments.here),)


def _name_after_here(arguments: argparse.Namespace) -> str | None:
    """`drop --here NAME`: the parser took it for the folder. None: it is one, with a slash in it or as no name begins,
    or none was given."""
    word: str | None = arguments.here
    if not word or "/" in word or word[0] in ".~":
        return None
    arguments.here = ""
    return word

"""Steps that prepare a target or look at it: each is one operation of orch and nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from orchestrator.agent.secret_values import masked
from orchestrator.errors import NotAsWantedError, OrchError, PreflightError, UsageError
from orchestrator.operations.execute import execute
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.durations import parse_duration
from orchestrator.probes.text import plain_text
from orchestrator.transport.local import LocalTransport
from orchestrator.transport.protocol import RemoteProcess

OUTPUT_KEPT = 4000
"""Characters of what an argv printed."""


async def deploy(at: At, options: schema.DeployOptions) -> Done:
    from orchestrator.operations.deploy import deploy as operation
    from orchestrator.reports.deploy import render_deploy

    report = await operation(at.target, revision=options.ref, trace=at.trace)
    return Done(render_deploy(report), {"release": report.release})


async def env_sync(at: At, options: schema.EnvSyncOptions) -> Done:
    from orchestrator.operations.environment import SyncRequest, sync
    from orchestrator.reports.environment import render_sync

    if at.target.payload is not None and not at.target.payload.environments:
        return Done(f"{at.target.name}: the payload names no environments; it uses {at.target.payload.python}")
    request = SyncRequest(
        purposes=tuple(options.purposes),
        wheels=Path(options.wheels) if options.wheels else None,
        indexes=tuple(options.indexes),
        rebuild=options.rebuild,
    )
    return Done(render_sync(await sync(at.target, request, on_phase=at.say, trace=at.trace)))


async def env_check(at: At, options: schema.EnvCheckOptions) -> Done:
    from orchestrator.operations.environment_check import CheckRequest, check
    from orchestrator.reports.environment_check import render_check

    request = CheckRequest(purpose=options.purpose, mode=options.mode)
    report = await check(at.target, request, trace=at.trace)
    if not report.passed:
        raise NotAsWantedError(
            f"{at.target.name}: the environment is not as it should be",
            evidence=render_check(report),
            way_out="orch env check\norch env sync --rebuild   where orch made it",
        )
    return Done(render_check(report))


async def cache_seed(at: At, options: schema.CacheSeedOptions) -> Done:
    from orchestrator.operations.cache_change import seed_cache
    from orchestrator.reports.cache import render_seeded

    try:
        report = await seed_cache(at.target, options.name, replace=options.replace, force=options.force, trace=at.trace)
    except (UsageError, PreflightError) as error:
        if options.without == "fail":
            raise
        said = f"{at.target.name}: not seeded, the run compiles for itself: {error.what}"
        return Done(said, warning=said)
    return Done(render_seeded(report))


async def cache_save(at: At, options: schema.CacheSaveOptions) -> Done:
    from orchestrator.operations.cache import list_kept
    from orchestrator.operations.cache_change import save_cache
    from orchestrator.reports.cache import render_saved

    if at.again:
        kept = await list_kept(at.target, trace=at.trace)
        if any(snapshot.name == options.name for snapshot in kept.snapshots.kept):
            return Done(f"{at.target.name}: snapshot {options.name} was saved before the play was cut off")
    return Done(render_saved(await save_cache(at.target, options.name, trace=at.trace)))


async def stop(at: At, options: schema.StopOptions) -> Done:
    """A run that is not of this play is somebody else's, and left alone unless any is meant."""
    from orchestrator.operations.follow_run import look_up_run
    from orchestrator.operations.stop import stop as operation
    from orchestrator.reports.stop import render_stop

    timeout_s = parse_duration(options.timeout) if options.timeout else None
    if options.what == "any live run":
        return Done(render_stop(await operation(at.target, timeout_s=timeout_s, kill=options.kill, trace=at.trace)))
    said = []
    for run_id in at.begun_runs:
        if await look_up_run(at.target, run_id, trace=at.trace) is None:
            continue  # chosen and never started
        report = await operation(at.target, timeout_s=timeout_s, kill=options.kill, run_id=run_id, trace=at.trace)
        said.append(render_stop(report))
    return Done("\n".join(said) or f"{at.target.name}: this play has started no run")


async def reset(at: At, options: schema.ResetOptions) -> Done:
    from orchestrator.operations.reset import ResetRequest, require_as_wanted
    from orchestrator.operations.reset import reset as operation
    from orchestrator.reports.reset import ResetPlan, render_plan, render_reset

    async def confirm(plan: ResetPlan) -> bool:
        at.say(render_plan(plan))
        return True

    request = ResetRequest(options.kill_gpus, options.clear_cache, options.seed)
    report = await operation(at.target, request, confirm=confirm, trace=at.trace)
    require_as_wanted(report)
    return Done(render_reset(report))


async def diff(at: At, options: schema.DiffOptions) -> Done:
    from orchestrator.operations.diff import diff as operation
    from orchestrator.reports.diff import render_diff

    report = await operation(at.target, [options.a, options.b], trace=at.trace)
    if options.different == "fail" and not report.comparison.equal:
        raise NotAsWantedError(
            f"{at.target.name}: {options.b} differs from {options.a}", evidence=render_diff(report), way_out="orch diff"
        )
    return Done(render_diff(report))


async def pull(at: At, options: schema.PullOptions) -> Done:
    from orchestrator.operations.pull import pull as operation
    from orchestrator.reports.pull import render_pull

    wanted = options.run or at.run_id or next(iter(at.begun_runs), None)
    if wanted is None:
        return Done(f"{at.target.name}: this play has started no run")
    folder = Path(options.to) if options.to else None
    return Done(render_pull(await operation(at.target, None if wanted == "last" else wanted, folder, trace=at.trace)))


async def run(at: At, options: schema.RunOptions) -> Done:
    """Its output is kept, its end; a command line that does not end with 0 has failed."""
    printed = bytearray()
    if options.where == "controller":
        where = "this machine"
        code = await _here(options.argv, printed, at)
    else:
        where = at.target.name
        code = await execute(
            at.target, options.argv, stdin=None, on_stdout=printed.extend, on_stderr=printed.extend, trace=at.trace
        )
    text = bytes(printed).decode("utf-8", "replace")
    if options.where == "controller":
        text = masked(text, os.environ)
    text = plain_text(text)[-OUTPUT_KEPT:].rstrip()
    if code != 0:
        raise OrchError(f"{options.argv[0]} on {where} ended with exit code {code}", evidence=text)
    return Done(f"{where}: {options.argv[0]} ended well" + (f"\n{text}" if text else ""))


async def _here(argv: list[str], printed: bytearray, at: At) -> int:
    process = await LocalTransport(trace=at.trace).start(argv)
    try:
        await process.write_eof()
        await asyncio.gather(_drain(process, printed), _drain_stderr(process, printed))
        return (await process.wait()).code
    finally:
        await process.abort()


async def _drain(process: RemoteProcess, printed: bytearray) -> None:
    while chunk := await process.read():
        printed.extend(chunk)


async def _drain_stderr(process: RemoteProcess, printed: bytearray) -> None:
    while chunk := await process.read_stderr():
        printed.extend(chunk)

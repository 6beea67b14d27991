"""The step that looks before anything is begun: is the target idle, are its GPUs free and well, is there room?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.errors import PreflightError
from orchestrator.inventory.model import Target
from orchestrator.operations.status import status as operation
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.probes.training import RunPhase
from orchestrator.reports.status import StatusReport, render_status

GIB = 1024**3
IDLE_MIB = 100
"""A driver holds a few MiB of a GPU that nobody uses."""


async def status(at: At, options: schema.StatusOptions) -> Done:
    """Raises PreflightError naming everything that is not as demanded."""
    report = await operation(at.target, trace=at.trace)
    wrong = list(find_wrong(report, at.target, options))
    if wrong:
        raise PreflightError(
            f"{at.target.name} is not ready: {wrong[0]}",
            evidence="\n".join(wrong[1:]),
            way_out="orch status" + ("\norch stop     to end the run" if options.idle and _is_live(report) else ""),
        )
    demanded = ", ".join(demands(options))
    return Done(f"{at.target.name}: {demanded}" if demanded else render_status(report))


def demands(options: schema.StatusOptions) -> Iterator[str]:
    if options.idle:
        yield "no run is live"
    if options.gpus_free:
        yield "GPUs are free"
    if options.gpus_healthy:
        yield "GPUs are well"
    if options.free_disk_gib is not None:
        yield f"at least {options.free_disk_gib:g} GiB are free on the disk"


def find_wrong(report: StatusReport, target: Target, options: schema.StatusOptions) -> Iterator[str]:
    if options.idle and _is_live(report):
        assert report.run is not None
        yield f"run {report.run.run_id} is live"
    if options.gpus_free or options.gpus_healthy:
        yield from _wrong_gpus(report, target, options)
    if options.free_disk_gib is not None:
        free = report.disk_free_bytes
        if free is None:
            yield "how much of the disk is free is not known"
        elif free < options.free_disk_gib * GIB:
            yield f"{free / GIB:.1f} GiB are free on the disk, {options.free_disk_gib:g} wanted"


def _is_live(report: StatusReport) -> bool:
    return report.run is not None and report.run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING)


def _wrong_gpus(report: StatusReport, target: Target, options: schema.StatusOptions) -> Iterator[str]:
    wanted = (target.payload.devices if target.payload else None) or 0
    if report.gpus is None:
        yield f"its GPUs are not known: {report.gpu_error or 'nobody answered'}"
        return
    if options.gpus_healthy:
        if len(report.gpus) < wanted:
            yield f"{len(report.gpus)} GPUs are there, {wanted} wanted"
        yield from (f"GPU {gpu.index}: {gpu.error}" for gpu in report.gpus if gpu.error)
        yield from report.gpu_warnings
    if options.gpus_free:
        for gpu in report.gpus:
            if gpu.memory_used_mib is not None and gpu.memory_used_mib > IDLE_MIB:
                pids = ", ".join(str(process.pid) for process in gpu.processes or ())
                yield f"GPU {gpu.index}: {gpu.memory_used_mib} MiB in use" + (
                    f" (pid {pids} on the host)" if pids else ""
                )

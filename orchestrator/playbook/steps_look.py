"""The step that looks before anything is begun: is the target idle, are its GPUs free and well, is there room?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.diagnosis.finding import SEVERITIES, Finding
from orchestrator.errors import ContainerError, NotAsWantedError, PreflightError, UnreachableError
from orchestrator.inventory.model import Target
from orchestrator.operations.doctor import doctor as examine
from orchestrator.operations.status import status as operation
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.probes.training import RunPhase
from orchestrator.reports.doctor import finding_lines, render_doctor
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


async def doctor(at: At, options: schema.DoctorOptions) -> Done:
    """Raises NotAsWantedError for a finding that is too severe."""
    report = await examine(at.target, options.run or at.run_id, trace=at.trace)
    refuse_findings(report.findings, options.no_finding_above, at.target)
    return Done(render_doctor(report))


def refuse_findings(findings: Iterable[Finding], most: str, target: Target) -> None:
    """most: the severity that is let through. Raises NotAsWantedError, the cause first; UnreachableError or
    ContainerError where it could not be looked at."""
    too_severe = [one for one in findings if SEVERITIES.index(one.severity) < SEVERITIES.index(most)]
    if not too_severe:
        return
    first = too_severe[0]
    # A target that cannot be looked at is no sick one: it may be tried again.
    kind = {"ssh": UnreachableError, "pct": ContainerError}.get(first.id, NotAsWantedError)
    raise kind(
        f"{target.name}: {first.id}: {first.what}",
        evidence="\n".join(line for one in too_severe for line in finding_lines(one)),
        way_out="\n".join(filter(None, [first.next_step, first.command])),
    )


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

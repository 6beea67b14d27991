"""stray-process, gpu-lost, gpu-ecc, gpu-throttled, gpu-neighbour: are the GPUs there, well, and this run's alone?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.diagnosis.case import Case
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING, Finding
from orchestrator.diagnosis.signatures.words import failure_lines, failures, good_text
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.pace import PaceSample
from orchestrator.probes.text import one_line

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.kill_plan import Choice

HOT = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
"""Reasons that are none of a healthy GPU at full load. `sw_power_cap` is: it was seen at 690 of 700 W."""
CAPPED = 0.7
"""Of the clock that the others, or the last good run, reach."""
BUSY_PERCENT = 50
SHARED_MIB = 512
"""What a neighbour's idle context takes; more is felt."""
SHOWN = 8


def stray(case: Case) -> Iterator[Finding]:
    plan = case.processes
    if plan is None:
        return
    found = [one for one in plan.killed if not one.reason.startswith("of the live run")]
    if not found:
        return
    no_room = next(failures(case, "cuda_oom"), None) is not None
    on_gpu = any(one.devices for one in found) or any("on a GPU" in one.reason for one in found)
    yield Finding(
        "stray-process",
        CRITICAL if on_gpu and no_room else WARNING if on_gpu or not case.live else INFO,
        f"{len(found)} process{'es' if found[1:] else ''} that no live run owns "
        + ("hold GPUs" if on_gpu else "are left of earlier runs"),
        (*(_process_line(one) for one in found[:SHOWN]), *_memory_lines(case)),
        "an earlier run, or something started by hand, did not end when its session was closed",
        "end exactly these: the plan is shown first, and asked for",
        case.orch("reset", "--kill-gpus"),
    )


def _process_line(one: Choice) -> str:
    devices = f" on {', '.join(one.devices)}" if one.devices else ""
    return one_line(f"pid {one.pid or one.host_pid}{devices}: {one.reason}: {one.command}", 200)


def _memory_lines(case: Case) -> tuple[str, ...]:
    used = ["-" if gpu.memory_used_mib is None else str(gpu.memory_used_mib) for gpu in case.gpus or ()]
    return (f"GPU memory used, MiB: {' '.join(used)}",) if used else ()


def neighbour(case: Case) -> Iterator[Finding]:
    """Another container's, or the host's own, on a GPU that this target sees."""
    plan = case.processes
    if plan is None or not case.gpus:
        return
    seen = {f"nvidia{gpu.index}" for gpu in case.gpus}
    others = [
        one
        for one in plan.spared
        if set(one.devices) & seen
        and (
            ("'s" in one.reason and "container" in one.reason)
            or "host's own" in one.reason
            or one.reason.startswith("not started by a run")  # of a host that is itself the target
        )
    ]
    others = [one for one in others if not any(word in one.command for word in ("nvidia-smi", "nv-hostengine", "dcgm"))]
    shared = {name for one in others for name in one.devices if name in seen}
    heavy = [gpu for gpu in case.gpus if f"nvidia{gpu.index}" in shared and (gpu.memory_used_mib or 0) > SHARED_MIB]
    if not others or not heavy:
        return
    no_room = next(failures(case, "cuda_oom"), None) is not None
    yield Finding(
        "gpu-neighbour",
        WARNING if case.live or no_room else INFO,
        f"GPU {', '.join(str(gpu.index) for gpu in heavy)}: processes that are not this target's use "
        + ("it, too" if len(heavy) == 1 else "them, too"),
        (*(_process_line(one) for one in others[:SHOWN]), *_memory_lines(case)),
        "a GPU is given to two containers, or somebody works on the host itself",
        "agree with its owner, or give this target other GPUs; orch ends nobody else's processes",
    )


def lost(case: Case) -> Iterator[Finding]:
    bad = [gpu for gpu in case.gpus or () if gpu.error]
    lines = [one_line(f"GPU {gpu.index}: {gpu.error}", 200) for gpu in bad]
    lines += [one_line(text, 200) for text in case.gpu_warnings if _is_of_loss(text)]
    lines += [line for one in failures(case, "gpu_hardware", "gpu_unavailable") for line in failure_lines(case, one)]
    wanted = case.payload.devices if case.payload is not None else None
    if case.gpus is not None and wanted and len(case.gpus) < wanted:
        lines.append(f"{len(case.gpus)} GPUs there, {wanted} wanted by the payload")
    if case.gpus is None and wanted and case.gpu_error:
        lines.append(one_line(case.gpu_error, 200))
    if not lines:
        return
    lines += [one_line(text, 200) for text in case.kernel_log or ()]
    yield Finding(
        "gpu-lost",
        CRITICAL,
        lines[0],
        tuple(dict.fromkeys(lines)),
        "the driver cannot reach a GPU: it fell off the bus, needs a reset, or the container lost its device files",
        "read the host's kernel log for NVRM; reset the GPU or restart the host once nothing runs, or the container "
        "where only it lost its devices",
        case.orch("status"),
    )


def _is_of_loss(text: str) -> bool:
    return ("ECC" not in text and not text.startswith("there is no /dev/nvidia-uvm")) or "CUDA cannot start" in text


def ecc(case: Case) -> Iterator[Finding]:
    bad = [gpu for gpu in case.gpus or () if gpu.ecc_uncorrected]
    kernel = [text for text in case.kernel_log or () if any(f"Xid {code}" in text for code in (48, 63, 64, 94, 95))]
    if not bad and not kernel:
        return
    yield Finding(
        "gpu-ecc",
        CRITICAL if bad else INFO,  # the kernel's log goes back to the boot
        ", ".join(f"GPU {gpu.index}: {gpu.ecc_uncorrected} ECC errors that could not be corrected" for gpu in bad)
        or one_line(kernel[0], 160),
        (
            *(f"GPU {gpu.index}: {gpu.ecc_uncorrected} uncorrected, {gpu.ecc_corrected or 0} corrected" for gpu in bad),
            *(one_line(text, 200) for text in kernel),
        ),
        "memory of the GPU fails; what ran on it since may be wrong",
        "stop the run, go on from a checkpoint before it, reset that GPU or leave it out, and have it replaced if it "
        "happens again",
        case.orch("stop"),
    )


def throttled(case: Case) -> Iterator[Finding]:
    if not case.live:
        return
    busy = [gpu for gpu in case.gpus or () if (gpu.utilization_percent or 0) >= BUSY_PERCENT]
    hot = [(gpu, [reason for reason in gpu.throttle or () if reason in HOT]) for gpu in busy]
    hot = [(gpu, reasons) for gpu, reasons in hot if reasons and _is_low(gpu)]
    evidence = [_clock_line(gpu, reasons) for gpu, reasons in hot]
    evidence += [*_less_power(case), *_lower_than_before(case)]
    if evidence:
        yield Finding(
            "gpu-throttled",
            WARNING,
            "GPUs run below their clock" if len(evidence) > 1 else evidence[0],
            tuple(evidence),
            "heat, the power supply, or a power limit that was set",
            "look at cooling and at the power limit on the host (`nvidia-smi -q -d PERFORMANCE,POWER`)",
        )


def _is_low(gpu: GpuFact) -> bool:
    clock, most = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz
    return clock is None or not most or clock < 0.9 * most


def _clock_line(gpu: GpuFact, reasons: list[str]) -> str:
    parts = [f"GPU {gpu.index}: {', '.join(reasons)}"]
    parts += [f"{gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz"] if gpu.sm_clock_mhz else []
    parts += [f"{gpu.temperature_c} °C"] if gpu.temperature_c is not None else []
    parts += [f"{gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W"] if gpu.power_w and gpu.power_limit_w else []
    return ", ".join(parts)


def _less_power(case: Case) -> list[str]:
    """A limit that somebody lowered; the same for all GPUs, or nothing is said."""
    for one in case.changed("gpus"):
        if one.name == "power limit (W)" and one.a and one.b:
            try:
                lower = float(one.b) < 0.95 * float(one.a)
            except ValueError:
                continue
            if lower:
                return [f"power limit {one.b} W; {one.a} W at {good_text(case)}"]
    return []


def _lower_than_before(case: Case) -> list[str]:
    """The clocks that the training itself wrote down, beside those of the last good run: medians over its lines."""
    here = _clocks(case.run.pace.samples) if case.run is not None and case.run.pace is not None else []
    there = _clocks(case.good.pace.samples) if case.good is not None and case.good.pace is not None else []
    if len(here) != len(there):
        return []
    return [
        f"GPU {index}: {now:.0f} MHz while it trains; {then:.0f} MHz at {good_text(case)}"
        for index, (now, then) in enumerate(zip(here, there, strict=True))
        if now < CAPPED * then
    ]


def _clocks(samples: Sequence[PaceSample]) -> list[float]:
    rows = [one.sm_clock_mhz for one in samples if one.sm_clock_mhz][-30:]
    return [sorted(gpu)[len(gpu) // 2] for gpu in zip(*rows, strict=False)] if len(rows) >= 5 else []

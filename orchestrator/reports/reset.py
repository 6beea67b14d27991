"""PURE: the plan of a reset, and what it did, as facts and as lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.cache_fit import Fit
from orchestrator.ledger.snapshots import Seed
from orchestrator.probes.compile_cache import CompileCache
from orchestrator.probes.gpu_processes import GpuVerdict
from orchestrator.probes.kill_plan import Choice, KillPlan
from orchestrator.reports.cache import fit_lines
from orchestrator.reports.table import DASH, bytes_text, number_text, render_rows

SCHEMA = "orch.reset/1"
WIDTH = 80


@dataclass(frozen=True)
class ResetPlan:
    target: str
    label: str
    kill: KillPlan | None
    """None: --kill-gpus was not asked for."""
    gpus: tuple[GpuVerdict, ...]
    """As they are before."""
    host_note: str | None
    """Why the host could not be looked at."""
    cache: CompileCache | None
    """None: --clear-cache was not asked for."""
    cache_unfinished: tuple[str, ...]
    """Clears that were cut short: this one finishes them."""
    snapshots_folder: str
    seed: Seed | None
    stop_timeout_s: float
    seed_fit: Fit | None = None
    """Of the seed, where there is one."""

    @property
    def empty(self) -> bool:
        """Nothing would be changed."""
        killing = self.kill is not None and bool(self.kill.runs or self.kill.host_processes)
        clearing = self.cache is not None and (bool(self.cache.bytes) or any(f.files for f in self.cache.folders))
        return not (killing or clearing or self.cache_unfinished or self.seed)


@dataclass(frozen=True)
class Cleared:
    snapshot: str | None
    """None: there was nothing."""
    bytes: int
    files: int
    finished: tuple[str, ...]
    """Snapshots of earlier clears that had been cut short."""
    odd: tuple[str, ...]
    """What is in it without being described: it is kept and not seeded."""
    kept_aside: tuple[str, ...]
    """Folders that could not go into the snapshot and lie beside their old place."""


@dataclass(frozen=True)
class Recheck:
    """One thing that was looked at again after all."""

    what: str
    ok: bool | None
    """None: not known, which is not good."""
    text: str


@dataclass(frozen=True)
class ResetReport:
    plan: ResetPlan
    done: bool
    """False: nothing was changed (a dry run, or not confirmed)."""
    killed: tuple[str, ...] = ()
    """`pid 41: ended`: one line a process or run."""
    cleared: Cleared | None = None
    seeded_files: int | None = None
    found: tuple[Recheck, ...] = ()

    @property
    def as_wanted(self) -> bool:
        return all(finding.ok is True for finding in self.found)


def render_plan(plan: ResetPlan) -> str:
    lines = [f"{plan.label}: reset"]
    if plan.kill is not None:
        lines += _kill_lines(plan, plan.kill)
    if plan.cache is not None:
        lines += _cache_lines(plan, plan.cache)
    return "\n".join(lines)


def _kill_lines(plan: ResetPlan, kill: KillPlan) -> list[str]:
    lines = []
    live = kill.live_run
    if live is not None:
        at = number_text(live.step)
        lines.append(f"  ENDS THE LIVE RUN {live.run_id} (step {at})")
        lines.append(f"    asked for a checkpoint, {plan.stop_timeout_s:g} s to save it, then killed")
    lines.append("  kill" if kill.killed else "  kill: nothing")
    lines += _table(kill.killed)
    if kill.spared:
        lines.append("  leave alone")
        lines += _table(kill.spared)
    if plan.host_note is not None:
        note = " ".join(plan.host_note.split())
        lines += ["  the host could not be looked at, so only runs of this target are ended:", _cut(f"    {note}")]
    if plan.gpus:
        used = [f"{gpu.index}: {DASH if gpu.used_mib is None else gpu.used_mib}" for gpu in plan.gpus]
        lines += _wrapped("  GPU memory used now, MiB  ", used)
    return lines


def _table(choices: tuple[Choice, ...]) -> list[str]:
    """Two lines a process: its numbers and, cut at WIDTH, its command; then why."""
    if not choices:
        return []
    rows = [("pid", "on host", "state", "GPUs", "command")]
    rows += [
        (
            number_text(choice.pid),
            number_text(choice.host_pid),
            choice.state,
            _devices(choice.devices),
            choice.command or DASH,
        )
        for choice in choices
    ]
    lines = [_cut(line) for line in render_rows(rows, indent="    ").split("\n")]
    for at, choice in reversed(list(enumerate(choices, 2))):
        lines.insert(at, _cut(f"      {choice.reason}"))
    return lines


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _devices(devices: tuple[str, ...]) -> str:
    numbers = [name.removeprefix("nvidia") for name in devices if name != "nvidia-uvm"]
    return ",".join(sorted(numbers, key=lambda number: (len(number), number))) or ("uvm" if devices else DASH)


def _wrapped(title: str, words: list[str]) -> list[str]:
    lines, line = [], title
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line.rstrip())
            line = " " * len(title)
        line += word + "  "
    return [*lines, line.rstrip()]


def _cache_lines(plan: ResetPlan, cache: CompileCache) -> list[str]:
    graphs = "" if cache.entries is None else f", {cache.entries} compiled graph{'' if cache.entries == 1 else 's'}"
    least = "" if cache.complete else "at least "
    rows = [(folder.path, bytes_text(folder.bytes) if folder.exists else "not there") for folder in cache.folders]
    lines = [f"  clear the compile cache: {least}{bytes_text(cache.bytes)}{graphs}", render_rows(rows, indent="    ")]
    lines.append(f"    kept as a snapshot in {plan.snapshots_folder}")
    if plan.cache_unfinished:
        lines.append(f"    finishes a clear that was cut short: {', '.join(plan.cache_unfinished)}")
    if plan.seed is not None:
        lines += [f"  seed it from snapshot {plan.seed.name}", f"    {plan.seed.why}"]
        lines += [f"  {line}" for line in fit_lines(plan.seed_fit)] if plan.seed_fit is not None else []
    return lines


def render_reset(report: ResetReport) -> str:
    """What was done, and what is true now; the plan was shown before."""
    lines = [f"{report.plan.target}: done" if report.done else f"{report.plan.target}: nothing was changed"]
    lines += [f"  {line}" for line in report.killed]
    if report.cleared is not None:
        lines += _cleared_lines(report.cleared)
    if report.seeded_files is not None and report.plan.seed is not None:
        lines.append(f"  cache seeded from {report.plan.seed.name}: {report.seeded_files} files, each compared")
    if report.found:
        lines.append("  looked at again:")
        marks = {True: "ok", False: "NOT", None: "?"}
        lines.append(render_rows([(marks[f.ok], f.what, f.text) for f in report.found], indent="    "))
    return "\n".join(lines)


def _cleared_lines(cleared: Cleared) -> list[str]:
    lines = [f"  cache: finished a clear that was cut short, kept as {name}" for name in cleared.finished]
    if cleared.snapshot is None:
        lines.append("  cache: there was nothing" + (" more" if cleared.finished else "") + " to clear")
    else:
        lines.append(
            f"  cache: {bytes_text(cleared.bytes)}, {cleared.files} files, kept as snapshot {cleared.snapshot}"
        )
    if cleared.odd:
        lines.append(f"    {len(cleared.odd)} of it cannot be seeded (links outwards and the like): {cleared.odd[0]}")
    lines += [f"    kept at {path}" for path in cleared.kept_aside]
    return lines


def reset_record(report: ResetReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    plan = asdict(report.plan)
    if plan["cache"] is not None and report.plan.cache is not None:
        plan["cache"].update(bytes=report.plan.cache.bytes, entries=report.plan.cache.entries)
    record = asdict(report)
    record.pop("plan")
    return {"schema": SCHEMA, "plan": plan, **record, "as_wanted": report.as_wanted if report.done else None}

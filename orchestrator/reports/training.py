"""PURE: how a training's progress is said: `training, step 120/700, loss 1.234, 12.3 Ktok/s, ETA 2 min 3 s`.

Rule: what is not known is left out; a rate is shown by its own unit.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.probes.rate import ITERATIONS, TOKENS, Rate
from orchestrator.probes.throughput import LONG_S, STATUS, Throughput, merge
from orchestrator.probes.training import CompileProgress, TrainingStatus
from orchestrator.reports.table import duration_text, rate_text

STALE_S = 30.0
"""A log that said nothing of progress for longer is worth a word."""
SAME = 0.02
"""Rates that differ by less are one number."""


def progress_parts(
    status: TrainingStatus | None,
    said: Throughput | None,
    compiling: CompileProgress | None,
    *,
    over: bool,
    beside: str = "",
) -> list[str]:
    """over: the run has ended, so that nothing is to come any more. beside: what its rate is compared with."""
    if compiling is not None:
        return [compile_text(compiling)]
    parts = [status.phase] if status and status.phase else []
    if said is not None:
        if said.step is not None:
            parts.append(f"step {said.step}" + (f"/{said.total_steps}" if said.total_steps is not None else ""))
        if said.loss is not None:
            parts.append(f"loss {loss_text(said.loss)}")
        if said.rate is not None and not over:
            parts += [rate_of(said.rate), *_long(said)]
            parts[-1] += f" ({beside})" if beside else ""
        if said.eta_s is not None and not over and (status is None or status.phase in (None, "training")):
            parts.append(f"ETA {duration_text(said.eta_s)}")
        if said.source != STATUS and said.age_s is not None and said.age_s > STALE_S and not over:
            parts.append(f"said {duration_text(said.age_s)} ago")
    if status and status.detail:
        parts.append(status.detail)
    return parts


def render_training(status: TrainingStatus) -> str:
    """What the payload says of itself, in one line."""
    parts = progress_parts(status, merge(status, None), None, over=False)
    return ", ".join(parts if status.phase else ["running", *parts])


def compiled_text(compiled: Mapping[str, int]) -> str:
    """`48 graphs, 46 from the cache, 2 not; autograd 23 from the cache, 1 not; 0 fallbacks, 1 recompiles`. What was not
    counted is left out."""
    graphs, hits, misses = (compiled.get(name) for name in ("compiles", "cache_hits", "cache_misses"))
    start = [] if graphs is None else [f"{graphs} {'graph' if graphs == 1 else 'graphs'}"]
    start += [] if hits is None else [f"{hits} from the cache"]
    start += [] if misses is None else [f"{misses} not"]
    of_autograd, missed = (compiled.get(name) for name in ("aot_cache_hits", "aot_cache_misses"))
    autograd = [] if of_autograd is None or missed is None else [f"autograd {of_autograd} from the cache, {missed} not"]
    autograd += [f"{count} cannot be cached"] if (count := compiled.get("cache_bypasses")) else []
    later = [f"{compiled[name]} {name}" for name in ("fallbacks", "recompiles") if name in compiled]
    later += ["tracing flag stuck"] if compiled.get("tracing_stuck") else []
    return "; ".join(", ".join(part) for part in (start, autograd, later) if part)


def loss_text(loss: float) -> str:
    return f"{loss:.3f}" if 0.01 <= abs(loss) < 10_000 else f"{loss:.4g}"


def compile_text(compiling: CompileProgress) -> str:
    """`compiling 3 of 8, 4:10`."""
    counted = "" if compiling.number is None else f" {compiling.number} of {compiling.total}"
    return f"compiling{counted}" + ("" if compiling.elapsed_s is None else f", {clock_text(compiling.elapsed_s)}")


def clock_text(seconds: float) -> str:
    """`4:10`, `1:04:10`."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def rate_of(rate: Rate) -> str:
    """`12.3 Ktok/s`, `1.78 it/s`, `0.347 it/s (2.88s/it)`: in its own unit, and as printed where that was a time."""
    text = rate_text(rate.per_s) if rate.counted == TOKENS else f"{rate.per_s:.3g} {rate.counted}/s"
    if rate.per_device:
        text += " a GPU"
    printed_as_time = rate.counted == ITERATIONS and rate.printed and "/s" not in rate.printed.replace(" ", "")
    return f"{text} ({rate.printed})" if printed_as_time and "_per_s" not in rate.printed else text


def _long(said: Throughput) -> list[str]:
    """Only where it is another number: a training that changed its pace."""
    rate, long = said.rate, said.long_rate
    if rate is None or long is None or abs(long.per_s - rate.per_s) <= SAME * max(long.per_s, rate.per_s):
        return []
    return [f"{rate_of(long)} over {LONG_S / 60:.0f} min"]

"""fx-race, torch-changed, recompile-limit, eager-fallback: did the training run the code that was compiled for it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.diagnosis.case import Case, differences
from orchestrator.diagnosis.diff import Difference
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING, Finding
from orchestrator.diagnosis.signatures.words import (
    difference_text,
    differences_text,
    failure_lines,
    failures,
    good_text,
    held_text,
    rate_line,
)
from orchestrator.probes.values import as_mapping

RACE_SAYS = (
    "FX to symbolically trace a dynamo-optimized",
    "module is not installed as a submodule",
    "CURRENT_PATCHER is None in finally block",
)
"""The second: Tracer.trace patches nn.Module.__call__ for all threads; the target threads fall over it. The third: two
traces that overlap take that patch from each other; uncompiled flex_attention traces on every call."""
FALLEN = 0.5
"""Of the last good run's rate: the fallback was seen at 0.15 to 0.21, a changed environment at 0.60."""
MEMORY_UP = 1.3
"""Of the last good run's peak: without fused attention 4.8 times were seen."""
SWING = 0.25
"""Of its highest use: a healthy allocator keeps what it has, a fallback's memory comes and goes."""
MANY_RECOMPILES = 5
HACKS = {
    ("torch._dynamo.config", "error_on_nested_fx_trace"): (
        False,
        "a call that meets a trace runs uncompiled, silently",
    ),
    ("torch._dynamo.config", "force_compile_during_fx_trace"): (True, "kernels are compiled while a trace goes on"),
    ("torch._dynamo.config", "suppress_errors"): (True, "what cannot be compiled runs uncompiled, silently"),
    ("torch._dynamo.config", "disable"): (True, "nothing is compiled"),
    ("torch._inductor.config", "force_disable_caches"): (True, "nothing is taken from the compile cache"),
    ("torch._inductor.config", "fx_graph_cache"): (False, "no graph is taken from the compile cache"),
}
HACK_VARIABLES = {
    "TORCHDYNAMO_DISABLE": ("1", "nothing is compiled"),
    "TORCH_COMPILE_DISABLE": ("1", "nothing is compiled"),
    "TORCHDYNAMO_SUPPRESS_ERRORS": ("1", "what cannot be compiled runs uncompiled, silently"),
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1", "nothing is taken from the compile cache"),
    "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0", "no graph is taken from the compile cache"),
    "CUDA_LAUNCH_BLOCKING": ("1", "Python waits for each kernel"),
}
OWN_GUARD = ("fx_guard.py", "worker_guard.py")
"""What the shipped payload itself puts in the place of torch's functions."""


def fx_race(case: Case) -> Iterator[Finding]:
    found = [
        one
        for one in failures(case, "dynamo_fx_nested", "exception")
        if one.kind == "dynamo_fx_nested" or any(words in one.line for words in RACE_SAYS)
    ]
    stuck = _stuck_flag(case)
    if case.run is None or not (found or stuck):
        return
    evidence = [*stuck, *(line for one in found for line in failure_lines(case, one))]
    out_of_memory = next(failures(case, "cuda_oom"), None)
    if out_of_memory is not None:
        evidence.append(f"and, as a consequence: {failure_lines(case, out_of_memory)[0]}")
    if case.good is not None and case.good.cache_before is not None:
        then, now = case.good.cache_before, case.run.cache_before
        evidence.append(f"compile cache at the start: {held_text(now)}; {held_text(then)} at {good_text(case)}")
    torch = (case.run.runtime or {}).get("torch")
    if isinstance(torch, str):
        evidence.append(f"torch {torch}: one tracing flag for the whole process below 2.14")
    evidence += [*_what_did_not_help(case), *(rate_line(case) if stuck else ())]
    hides = case.orch("cache", "seed", "last-good", "--replace") if case.snapshots else None
    yield Finding(
        "fx-race",
        CRITICAL,
        "threads of one process compiled at once: torch.fx's tracing flag is one for all of them",
        tuple(evidence),
        "one thread traces (a compilation, create_block_mask) while another calls compiled code; a warm cache only "
        "makes the traces short enough to hide it",
        "compile every shape on one thread before the workers start, or give each device its own process, in the code; "
        + ("until then a warm cache hides it most of the time" if hides else "no setting, package or cache cures it"),
        case.orch("launch", "--set", "engine=processes") if _is_ours(case) else hides,
    )


def _stuck_flag(case: Case) -> list[str]:
    """Two traces that overlapped left it set. No error is raised where the setting for that is off."""
    status = case.run.record.status if case.run is not None and case.run.record is not None else None
    count = (status.compiled or {}).get("tracing_stuck", 0) if status is not None else 0
    where = "" if count < 2 else f" in {count} processes"
    return [f"the tracing flag is stuck{where}: every compiled call runs uncompiled, silently"] if count else []


def _what_did_not_help(case: Case) -> list[str]:
    tried = differences(case.comparison, "torch", "stack", "packages", "settings", "compiler", "replaced")
    return [f"changed since, and not the cause: {difference_text(one)}" for one in tried[:3]]


def _is_ours(case: Case) -> bool:
    """The payload that ships has a setting for it."""
    return case.run is not None and "engine" in (case.run.runtime or {})


def torch_changed(case: Case) -> Iterator[Finding]:
    runtime = (case.run.runtime if case.run is not None else None) or {}
    told = case.good is not None and case.good.runtime is not None
    evidence = list(differences_text(_changed_functions(case)))
    hacks = _hacks(runtime) + _hack_variables(case)
    if told:
        evidence += differences_text(differences(case.comparison, "compiler"))
    else:
        evidence += [
            f"{name} is replaced by {place}"
            for name, place in as_mapping(runtime.get("replaced_functions")).items()
            if not any(own in str(place) for own in OWN_GUARD)
        ]
    evidence += [text for text in hacks if text not in evidence]
    if not evidence:
        return
    yield Finding(
        "torch-changed",
        INFO if case.does_well and not hacks else WARNING if case.does_well or not hacks else CRITICAL,
        "settings or functions of torch itself are not as they were"
        if told
        else "settings or functions of torch itself were replaced",
        (*evidence, *rate_line(case)),
        "a cure tried in the code, or a package that patches torch when it is imported",
        "take the change out of the code, or that package out of the environment; then launch again from a cache that "
        "was made without it",
        case.orch("diff"),
    )


def _changed_functions(case: Case) -> list[Difference]:
    return [
        one for one in differences(case.comparison, "replaced") if not any(own in (one.b or "") for own in OWN_GUARD)
    ]


def _hacks(runtime: Mapping[str, object]) -> list[str]:
    settings = as_mapping(runtime.get("compiler_settings"))
    found = []
    for (module, name), (value, meaning) in HACKS.items():
        if as_mapping(settings.get(module)).get(name) is value:
            found.append(f"{module}.{name} = {value}: {meaning}")
    return found


def _hack_variables(case: Case) -> list[str]:
    """Of the run's environment. `True` and the like are 1, as torch has it."""
    told = case.variables or {}
    found = []
    for name, (value, meaning) in HACK_VARIABLES.items():
        here = (told.get(name) or "").lower()
        if here == value or (value == "1" and here in ("true", "yes", "on")):
            found.append(f"{name}={told[name]}: {meaning}")
    return found


def recompile_limit(case: Case) -> Iterator[Finding]:
    said = [line for one in failures(case, "recompile_limit") for line in failure_lines(case, one)]
    counted = _recompiles(case)
    if not said and not counted:
        return
    yield Finding(
        "recompile-limit",
        CRITICAL if said else WARNING,
        "compiled too often: torch gave up, and what it gave up on runs uncompiled"
        if said
        else "it compiles again and again while it trains",
        (*said, *counted, *rate_line(case)),
        "the limit (8) counts per function, whatever the device: 3 devices x 2 gradient modes x 2 shapes are 12"
        if said
        else "each new length or shape is compiled anew, and the training waits for it",
        "raise torch._dynamo.config.recompile_limit above devices x gradient modes x shapes, in every thread, or "
        "fill sequences up to fewer lengths",
    )


def _recompiles(case: Case) -> list[str]:
    """Only of a run that is slower for it: one more shape is compiled once, and that is as it should be."""
    here, there = (one.record.status if one and one.record else None for one in (case.run, case.good))
    count = (here.compiled or {}).get("recompiles", 0) if here is not None else 0
    then = (there.compiled or {}).get("recompiles", 0) if there is not None else 0
    known = case.run is not None and case.run.tokens_per_s is not None
    if count < MANY_RECOMPILES or count <= 2 * then or not known or case.does_well:
        return []
    return [f"{count} recompiles after the start" + (f"; {then} at {good_text(case)}" if there is not None else "")]


def eager_fallback(case: Case) -> Iterator[Finding]:
    if case.run is None:
        return
    evidence = [*_stuck_flag(case), *_said_by_counters(case)] + [
        line for one in failures(case, "eager_fallback") for line in failure_lines(case, one)
    ]
    certain = bool(evidence)
    evidence += _said_by_memory(case)
    if not evidence:
        return
    yield Finding(
        "eager-fallback",
        CRITICAL,
        "code that was to run compiled runs uncompiled" + ("" if certain else ", as rate and memory say together"),
        (*evidence, *rate_line(case)),
        "torch's tracing flag got stuck (two threads compiled at once), a recompile limit, or a setting that silences "
        "the error; a flag that is stuck never heals",
        "stop it, mend what is named above this finding, and launch again; waiting does not help",
        case.orch("stop") if case.live else case.logs("--traceback"),
    )


def _said_by_counters(case: Case) -> list[str]:
    status = case.run.record.status if case.run is not None and case.run.record is not None else None
    count = (status.compiled or {}).get("fallbacks", 0) if status is not None else 0
    found = [f"{count} calls ran uncompiled, by the payload's own counter; 0 is healthy"] if count else []
    good = case.good.record.status if case.good is not None and case.good.record is not None else None
    then = (good.compiled or {}).get("compiles", 0) if good is not None else 0
    trained = status is not None and (status.step or 0) > 0
    if trained and status is not None and (status.compiled or {}).get("compiles") == 0 and then and case.same_shape:
        found.append(f"0 graphs were compiled; {then} at {good_text(case)}")
    return found


def _said_by_memory(case: Case) -> list[str]:
    """Well below the last good rate, with memory that is up or that comes and goes. None of it alone."""
    run, good = case.run, case.good
    here, there = run.tokens_per_s if run else None, good.tokens_per_s if good else None
    if run is None or not here or not there or here >= FALLEN * there or not case.same_shape:
        return []
    evidence = []
    peak, peak_then = (one.pace.peak_mib if one is not None and one.pace is not None else None for one in (run, good))
    if peak is not None and peak_then and peak > MEMORY_UP * peak_then:
        evidence.append(f"GPU memory peaks at {peak:.0f} MiB; {peak_then:.0f} MiB at {good_text(case)}")
    swing = case.memory_swing
    swing_then = good.pace.memory_swing if good is not None and good.pace is not None else None
    if swing is not None and swing > SWING and swing > 2 * (swing_then or 0.0):
        before = "" if swing_then is None else f"; {100 * swing_then:.0f} % at {good_text(case)}"
        evidence.append(f"GPU memory goes up and down by {100 * swing:.0f} % of its highest{before}")
    return evidence

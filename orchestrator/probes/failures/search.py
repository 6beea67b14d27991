"""Rows of a log -> its failures: each once, whoever printed it how often, and which of them the others follow from.

Rule: what Python ignored, what was tried again and what ended because it was told to is no failure. Causes go before
consequences, then what came first.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from orchestrator.probes.failures import distributed, gpu, kernel, software, system
from orchestrator.probes.failures.dumps import NEEDLES as BLOCK_NEEDLES
from orchestrator.probes.failures.dumps import PAGE_KB, Noticed, derived, noticed_in_blocks, process_table
from orchestrator.probes.failures.found import FailureFound, Telling
from orchestrator.probes.failures.kinds import KINDS, Role
from orchestrator.probes.failures.signature import Signature, compiled, merged, size_bytes, values_of
from orchestrator.probes.import_failure import trouble_in
from orchestrator.probes.rows import Told, joined
from orchestrator.probes.spans import Piece, Span, Value
from orchestrator.probes.traceback_facts import Raised, Traceback
from orchestrator.probes.traceback_words import WRAPPERS

SIGNATURES: tuple[Signature, ...] = (
    *gpu.SIGNATURES,
    *distributed.SIGNATURES,
    *system.SIGNATURES,
    *kernel.SIGNATURES,
    *software.SIGNATURES,
)
MAX_TELLINGS = 64
"""Of one failure; more are counted only."""
MAX_NOTICED = 1024
"""Of one kind; a log that tells of it more often says nothing more."""
MAX_RANK = 100_000
A_MACHINES_RANKS = 8
MAX_ROW_CHARS = 4096
"""Of a longer row the begin is searched."""
RETRIED = re.compile(
    r"\bretrying\b|\bwill retry\b|trying (?:again|to resume)|\bresuming\b|\battempt \d+ ?(?:of|/) ?\d+", re.IGNORECASE
)
_WEAK = re.compile(
    r"(?:.*\.)?(?:BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError"
    r"|ActorDiedError|RayActorError|WorkerCrashedError|ConnectionAbortedError|Empty|QueueEmpty"
    r"|DistNetworkError|DistStoreError|TimeoutError|CancelledError|BrokenProcessPool|BrokenBarrierError)$"
)
"""Most often because another one ended."""
_SURVIVABLE = frozenset(
    {
        *("cuda_oom", "host_memory", "compile_failed", "exception", "checkpoint_write", "disk_full"),
        *("recompile_limit", "hub_access", "process_limit"),
    }
)
"""What a program may catch and go on after: a batch left out, a function that runs uncompiled."""
_PIN_MEMORY = "_pin_memory_loop"
_NO_FAILURE = re.compile(r"(?:.*\.)?(?:KeyboardInterrupt|SystemExit|GeneratorExit|BrokenPipeError)$")
_OF_IMPORTS = frozenset({"missing_library", "abi_mismatch", "import_error"})
"""Of these import_failure knows which package to see to."""
_DELETED = str.maketrans("", "", "0123456789")


def find_failures(
    told: Sequence[Told], tracebacks: Sequence[Traceback], progress_after: int | None
) -> tuple[FailureFound, ...]:
    """In the order of their begins. progress_after: where the last row stands that told of further progress."""
    noticed = [each for each in _noticed(told) if not _in_a_stack(each, tracebacks)]
    starts = [each.row.start for each in told]
    harmless = [each for each in tracebacks if _is_harmless(each, told, starts)]
    noticed = [each for each in noticed if not any(_within(each.span, other.span) for other in harmless)]
    noticed += _unknown_exceptions(tracebacks, harmless, noticed, told, starts)
    groups: dict[str, list[Noticed]] = {}
    for each in sorted(noticed, key=lambda one: (not one.is_root, one.span.start)):
        groups.setdefault(each.kind, []).append(each)
    found = [_failure(kind, group, tracebacks, progress_after) for kind, group in groups.items()]
    found = [each for each in found if not (each.kind == "rendezvous_failed" and each.survived)]  # tried again
    table = process_table(told) if "host_oom_kill" in groups else {}
    found = [_with_table(each, table) if each.kind == "host_oom_kill" else each for each in found]
    return tuple(sorted(_without_echoes(found), key=lambda each: each.span.start))


def root_of(found: Sequence[FailureFound]) -> FailureFound | None:
    """The one that the others follow from, as far as the log tells."""
    order = {Role.CAUSE: 0, Role.CONSEQUENCE: 2, Role.NOTICE: 4}
    late = {
        "worker_failed": 0.5,
        "bad_command": 0.25,
        "aborted": 0.25,
        "exception": 0.25,
        "killed": 0.25,
        "compile_failed": 0.2,
        "nccl_error": 0.2,
    }

    def rank(each: FailureFound) -> tuple[float, int]:
        place = (
            order[Role(each.role)] + late.get(each.kind, 0.0) + (1 if each.survived and each.role == Role.CAUSE else 0)
        )
        return (place, each.span.start)

    failed = [each for each in found if each.role in (Role.CAUSE, Role.CONSEQUENCE) or each.kind == "terminated"]
    if any(each.kind == "inodes_full" for each in failed):  # which the kernel calls no space, too
        failed = [each for each in failed if each.kind != "disk_full"]
    root = min(failed, key=rank, default=None)
    if root is not None and "exitcode" in root.values and not root.is_first:  # known from the launcher's table only
        root = next((each for each in failed if each.is_first and each.kind != "worker_failed"), root)
    if root is not None and root.kind == "cuda_oom":  # attention that was to be compiled asks for the whole matrix
        uncompiled = (each for each in found if "attention" in each.values and each.span.start < root.span.start)
        root = next(uncompiled, root)
    return root


def _noticed(told: Sequence[Told]) -> list[Noticed]:
    wanted = _Wanted()
    counts: dict[str, int] = {}
    streams: dict[str, list[Told]] = {}
    for each in told:
        streams.setdefault(each.origin.stream, []).append(each)
    found: list[Noticed] = []
    for rows in streams.values():
        has_blocks = False
        for index, each in enumerate(rows):
            signatures, is_block = wanted.of(each.text)
            has_blocks = has_blocks or is_block
            for sought in signatures:
                if counts.get(sought.kind, 0) < MAX_NOTICED and (one := _look(sought, rows, index)) is not None:
                    counts[sought.kind] = counts.get(sought.kind, 0) + 1
                    found += [one, *derived(one)]
        if has_blocks:
            found += islice(noticed_in_blocks(rows), MAX_NOTICED)
    return found


class _Wanted:
    """Which signatures a row may hold, remembered by its shape: trainings print the same line again and again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[Signature, ...], bool]] = {}

    def of(self, text: str) -> tuple[tuple[Signature, ...], bool]:
        shape = text[:MAX_ROW_CHARS].lower().translate(_DELETED)
        known = self._known.get(shape)
        if known is None:
            signatures = tuple(
                sought for sought, needles in _BARE_NEEDLES if any(needle in shape for needle in needles)
            )
            is_block = any(needle in shape for needle in BLOCK_NEEDLES)
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[shape] = signatures, is_block
        return known


_BARE_NEEDLES = tuple(
    (sought, tuple(needle.lower().translate(_DELETED) for needle in sought.needles)) for sought in SIGNATURES
)


def _look(sought: Signature, rows: Sequence[Told], index: int) -> Noticed | None:
    row = rows[index].row
    if len(row.text) > MAX_ROW_CHARS:
        row = row.cut(0, MAX_ROW_CHARS)
    found = compiled(sought.pattern).search(row.text)
    if found is None or (sought.unless is not None and compiled(sought.unless).search(row.text)):
        return None
    context = row
    if sought.following:
        behind = [each.row.cut(0, MAX_ROW_CHARS) for each in rows[index + 1 : index + 1 + sought.following]]
        context = joined([row, *behind], "\n")
    values = values_of(found, row)
    for pattern in sought.more:
        if (more := compiled(pattern).search(context.text)) is not None:
            values = merged(values, values_of(more, context))
    if sought.needs is not None and sought.needs not in values:
        return None
    if sought.others is not None:
        for other in compiled(sought.others).finditer(context.text):
            if (size := size_bytes(other["size"])) is not None:
                values.setdefault(f"process_{other['pid']}_bytes", Value(size, context.span(*other.span("size"))))
    remedy = None
    if sought.kind in _OF_IMPORTS and (trouble := trouble_in(Piece(row.text, 0))) is not None:
        remedy = trouble.way_out or None
        named = {
            name: Value(each.value, row.span(each.span.start, each.span.end)) for name, each in trouble.named.items()
        }
        values = merged(named, values)
    origin = rows[index].origin
    rank, pid = values.get("rank"), values.get("pid")
    end = max([row.span(0, found.end()).end, *(value.span.end for value in values.values())])
    return Noticed(
        sought.kind,
        row,
        Span(row.span(found.start()).start, end),
        values,
        rank.value if rank is not None and isinstance(rank.value, int) else origin.rank,
        pid.value if pid is not None and isinstance(pid.value, int) else origin.pid,
        remedy=remedy,
        rank_at=origin.rank_at,
        pid_at=origin.pid_at,
    )


def _within(inner: Span, outer: Span) -> bool:
    return outer.start <= inner.start < max(outer.end, outer.start + 1)


def _in_a_stack(each: Noticed, tracebacks: Sequence[Traceback]) -> bool:
    """In a row of code that a stack shows: what the program says about failures is none."""
    if not each.row.text.startswith((" ", "\t")):
        return False
    for traceback in tracebacks:
        if not _within(each.span, traceback.span):
            continue
        for link in traceback.links:
            end = link.spans["exception"].start if "exception" in link.spans else link.spans["whole"].end
            if link.spans["whole"].start <= each.span.start < end:
                return True
    return False


def _is_harmless(traceback: Traceback, told: Sequence[Told], starts: Sequence[int]) -> bool:
    if traceback.ignored or traceback.is_warned:
        return True
    if _NO_FAILURE.match(traceback.exception_type or "") and traceback.exception_type != "KeyboardInterrupt":
        return True
    after = bisect_left(starts, traceback.span.end)
    message = (traceback.links[-1].exception or "").split("\n")[1:]  # which goes on with what was printed behind it
    behind = [each.text[:MAX_ROW_CHARS] for each in told[after : after + 3]]
    return any(RETRIED.search(text) for text in [*message[:20], *behind])


def _unknown_exceptions(
    tracebacks: Sequence[Traceback],
    harmless: Sequence[Traceback],
    noticed: Sequence[Noticed],
    told: Sequence[Told],
    starts: Sequence[int],
) -> list[Noticed]:
    found = []
    for traceback in tracebacks:
        if traceback in harmless or any(_within(each.span, traceback.span) for each in noticed):
            continue
        root = traceback.root
        if not root.exception:
            wrapper = next((link for link in reversed(traceback.links) if link.exception), None)
            if traceback.thread is not None and _PIN_MEMORY in traceback.text:
                first = bisect_left(starts, traceback.span.start)
                row = next((each.row for each in told[first:] if _PIN_MEMORY in each.text), told[first].row)
                values, at = {"thread": traceback.thread}, traceback.spans.get("rank")
                found.append(Noticed("data_thread_died", row, traceback.span, values, traceback.rank, rank_at=at))
            elif wrapper is not None:
                found.append(_exception(wrapper, traceback, told, starts))
            continue
        if WRAPPERS.match(root.exception_type or "") or _NO_FAILURE.match(root.exception_type or ""):
            continue
        found.append(_exception(root, traceback, told, starts))
    return found


def _exception(link: Raised, traceback: Traceback, told: Sequence[Told], starts: Sequence[int]) -> Noticed:
    span = link.spans["exception"]
    row = told[max(bisect_right(starts, span.start) - 1, 0)].row
    row = row.cut(span.start - row.start if row.places is None else bisect_left(row.places, span.start))
    values = {}
    if link.exception_type is not None:
        values["exception_type"] = Value(link.exception_type, link.spans["exception_type"])
    return Noticed("exception", row, span, values, traceback.rank, rank_at=traceback.spans.get("rank"))


def _failure(
    kind: str, group: list[Noticed], tracebacks: Sequence[Traceback], progress_after: int | None
) -> FailureFound:
    tellings: list[Noticed] = []
    for each in group:
        if not any(_is_same(each, other) for other in tellings):
            tellings.append(each)
    first = group[0]
    values: dict[str, Value] = {}
    for each in group:
        same = each is first or each.rank == first.rank or first.pid == each.pid
        values = merged(values, each.values) if same or not values else values
    about = KINDS[kind]
    last = max(each.span.end for each in group)
    survived = progress_after is not None and progress_after > last
    owner = next((n for n, traceback in enumerate(tracebacks) if _within(first.span, traceback.span)), None)
    ranks = {each.rank for each in group if each.rank is not None}
    role = about.role
    if kind == "exception" and all(_is_weak(each) for each in group):
        role = Role.CONSEQUENCE
    if kind == "recompile_limit" and any("FailOnRecompileLimitHit" in each.row.text for each in group):
        role = Role.CAUSE  # raised, where others are a warning
    if survived and kind in _SURVIVABLE and (owner is None or tracebacks[owner].thread is None):
        role = Role.DEGRADED
    return FailureFound(
        kind=kind,
        title=about.title,
        role=str(role),
        remedy=next((each.remedy for each in group if each.remedy), about.remedy),
        line=first.row.text.strip(),
        values=values,
        ranks=tuple(sorted(ranks)),
        count=len(tellings),
        tellings=tuple(_telling(each) for each in tellings[:MAX_TELLINGS]) if len(tellings) > 1 else (),
        is_first=any(each.is_root for each in group),
        silent_ranks=_silent(ranks) if kind == "nccl_timeout" else (),
        survived=survived,
        traceback=owner,
        spans={
            "kind": first.span,
            "line": first.row.span(),
            "ranks": Span.over([each.place_of("rank") for each in group if each.rank is not None] or [first.span]),
        },
    )


def _silent(ranks: set[int]) -> tuple[int, ...]:
    """Of eight ranks of which none told, this may be another machine's log."""
    highest = min(max(ranks, default=0), MAX_RANK)
    told = {rank // A_MACHINES_RANKS for rank in ranks}
    silent = (rank for rank in range(highest) if rank not in ranks and rank // A_MACHINES_RANKS in told)
    return tuple(islice(silent, MAX_TELLINGS)) if len(ranks) > 1 else ()


def _telling(each: Noticed) -> Telling:
    spans = {"line": each.row.span(), "rank": each.place_of("rank"), "pid": each.place_of("pid")}
    return Telling(each.row.text.strip(), each.rank, each.pid, each.values, spans=spans)


def _is_weak(each: Noticed) -> bool:
    name = each.values.get("exception_type")
    return name is not None and _WEAK.match(str(name.value)) is not None


def _is_same(each: Noticed, other: Noticed) -> bool:
    """Told again: by the same writer or by none that is known, and nothing in it is another value."""
    if each.rank != other.rank and None not in (each.rank, other.rank):
        return False
    if each.pid != other.pid and None not in (each.pid, other.pid):
        return False
    mine = {name: value.value for name, value in each.values.items()}
    theirs = {name: value.value for name, value in other.values.items()}
    return all(theirs.get(name, value) == value for name, value in mine.items())


def _with_table(failure: FailureFound, table: Mapping[int, dict[str, Value]]) -> FailureFound:
    pid = failure.values.get("pid")
    row = table.get(pid.value) if pid is not None and isinstance(pid.value, int) else None
    if row is None:
        return failure
    pages = row["table_rss_pages"]
    assert isinstance(pages.value, int)
    values = merged(failure.values, {**row, "table_rss_kb": Value(pages.value * PAGE_KB, pages.span)})
    return replace(failure, values=values)


def _without_echoes(found: list[FailureFound]) -> list[FailureFound]:
    """A general kind that a special one tells of better, in the same place."""
    special = {
        "disk_full": ("checkpoint_write", "shm_full"),
        "killed": ("host_oom_kill",),
        "bus_error": (),
        "cuda_error": ("device_assert", "illegal_access", "cuda_oom"),
        "nccl_error": ("illegal_access",),
        "compile_failed": ("triton_resources",),
    }
    kept = []
    for each in found:
        better = [
            other
            for other in found
            if other.kind in special.get(each.kind, ()) and other.spans["line"] == each.spans["line"]
        ]
        if not better:
            kept.append(each)
    return kept

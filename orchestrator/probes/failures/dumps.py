"""What is told in several rows: faulthandler's stacks, torchrun's table, the kernel's table of processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.probes.rows import Row, Told
from orchestrator.probes.spans import Span, Value

BY_SIGNAL = {
    4: "illegal_instruction",
    6: "aborted",
    7: "bus_error",
    8: "fpe",
    9: "killed",
    11: "segfault",
    15: "terminated",
}
BY_NAME = {
    "illegal instruction": 4,
    "aborted": 6,
    "bus error": 7,
    "floating point exception": 8,
    "floating-point exception": 8,
    "killed": 9,
    "segmentation fault": 11,
    "terminated": 15,
    "sigill": 4,
    "sigabrt": 6,
    "sigbus": 7,
    "sigfpe": 8,
    "sigkill": 9,
    "sigsegv": 11,
    "sigterm": 15,
}
NEEDLES = ("fatal python error", "most recent call first", "(local_rank:", "root cause (first")
PAGE_KB = 4
_FATAL = re.compile(r"Fatal Python error: (?P<error>.{1,200}?)\s*$")
_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<thread>0x[\da-f]{1,16})(?: \[[^\]]{0,80}\])? \(most recent call first\):"
)
_FRAME = re.compile(r'\s*File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}) in (?P<function>.{1,300}?)\s*$')
_INNER = re.compile(
    r"\s+(?:File |\.\.\.|<no Python frame>)|\s*$|Extension modules:|Python runtime state"
    r"|\s*Garbage-collecting|Current thread|Thread 0x"
)
_FIELD = re.compile(
    r"\s{0,8}(?P<name>time|host|rank|exitcode|error_file|traceback|msg|message)\s{0,12}: ?(?P<value>.{0,400}?)\s*$"
)
_RANK = re.compile(r"(?P<rank>\d{1,6}) \(local_rank: (?P<local_rank>\d{1,6})\)")
_EXIT = re.compile(r"(?P<exitcode>-?\d{1,6})\s{1,4}\(pid: (?P<pid>\d{1,9})\)")
_PROCESS = re.compile(
    r"\[ *(?P<pid>\d{1,9})\] +(?P<uid>\d{1,9}) +\d{1,9} +(?P<total_pages>\d{1,15}) "
    r"+(?P<rss_pages>\d{1,15}) +\d{1,15}(?: +-?\d{1,15}){1,6}(?: +(?P<process>[^\s\d]\S{0,63}))?\s*$"
)
_MAX_ROWS = 4000


@dataclass(frozen=True)
class Noticed:
    """One telling of a failure."""

    kind: str
    row: Row
    span: Span
    values: Mapping[str, Value]
    rank: int | None = None
    pid: int | None = None
    is_root: bool = False
    """The launcher says that it came first."""
    remedy: str | None = None
    """Where its words say more than its kind does."""
    rank_at: Span | None = None
    pid_at: Span | None = None
    """Where the two stand, if not among the values."""

    def place_of(self, name: str) -> Span:
        """name: rank or pid."""
        value = self.values.get(name)
        if value is not None and value.value == getattr(self, name):
            return value.span
        place: Span | None = getattr(self, f"{name}_at")
        return self.span if place is None else place


def noticed_in_blocks(told: Sequence[Told]) -> Iterator[Noticed]:
    """told: rows of one writer, in order."""
    for index, each in enumerate(told):
        text = each.text
        if "Fatal Python error" in text or ("most recent call first" in text and _THREAD.search(text)):
            if not _inside_dump(told, index):
                yield from _dump(told, index)
        elif "(local_rank:" in text and _FIELD.match(text):
            yield from _table_entry(told, index)


def _inside_dump(told: Sequence[Told], index: int) -> bool:
    """Another thread of a dump that began before."""
    if "Fatal Python error" in told[index].text:
        return False
    for back in range(index - 1, max(-1, index - 400), -1):
        text = told[back].text
        if "Fatal Python error" in text or _THREAD.search(text):
            return True
        if not _INNER.match(text):
            return False
    return False


def _dump(told: Sequence[Told], start: int) -> Iterator[Noticed]:
    fatal = _FATAL.search(told[start].text)
    values: dict[str, Value] = {}
    row = told[start].row
    if fatal:
        values["error"] = Value(fatal["error"], row.span(*fatal.span("error")))
    end, awaits_frame = start, False
    for index in range(start if fatal is None else start + 1, min(len(told), start + _MAX_ROWS)):
        each = told[index]
        thread = _THREAD.search(each.text)
        if thread is None and not _INNER.match(each.text):
            break
        if each.text.strip():
            end = index
        if thread is not None:
            awaits_frame = thread["current"] == "Current thread"
            if awaits_frame:
                values["thread"] = Value(thread["thread"], each.row.span(*thread.span("thread")))
        elif awaits_frame and (frame := _FRAME.match(each.text)):
            for name in ("file", "function"):
                values[name] = Value(frame[name], each.row.span(*frame.span(name)))
            values["line_number"] = Value(int(frame["line"]), each.row.span(*frame.span("line")))
            awaits_frame = False
    kind = "stack_dump"
    if fatal is not None:
        number = BY_NAME.get(fatal["error"].lower())
        kind = BY_SIGNAL.get(number or 6, "aborted")
    begin = fatal.start() if fatal else 0
    origin = told[start].origin
    span = Span(row.span(begin).start, told[end].row.span().end)
    noticed = Noticed(kind, row, span, values, origin.rank, origin.pid)
    yield replace(noticed, rank_at=origin.rank_at, pid_at=origin.pid_at)


def _table_entry(told: Sequence[Told], index: int) -> Iterator[Noticed]:
    """The entry of torchrun's table that names its rank in row `index`."""
    values: dict[str, Value] = {}
    first = last = index
    while first > 0 and index - first < 4 and _FIELD.match(told[first - 1].text):
        first -= 1
    for position in range(first, min(len(told), index + 8)):
        field = _FIELD.match(told[position].text)
        if field is None or (position > index and field["name"] == "time"):
            break
        last = position
        _take_field(values, told[position].row, field)
    if "rank" not in values:
        return
    is_root = any("Root Cause (first" in each.text for each in told[max(0, first - 3) : first])
    row = told[index].row
    span = Span(told[first].row.span().start, told[last].row.span().end)
    rank = values["rank"].value
    pid = values["pid"].value if "pid" in values else None
    yield Noticed(
        "worker_failed",
        row,
        span,
        values,
        rank if isinstance(rank, int) else None,
        pid if isinstance(pid, int) else None,
        is_root,
    )
    yield from _by_exitcode(row, span, values, is_root)


def _by_exitcode(row: Row, span: Span, values: Mapping[str, Value], is_root: bool) -> Iterator[Noticed]:
    code = values.get("exitcode")
    if code is None or not isinstance(code.value, int):
        return
    number = -code.value if code.value < 0 else code.value - 128 if 128 < code.value < 160 else 0
    if number in BY_SIGNAL:
        kept = {name: values[name] for name in ("pid", "local_rank", "host", "time", "exitcode") if name in values}
        told = values.get("rank")
        rank = told.value if told is not None and isinstance(told.value, int) else None
        at = None if told is None else told.span
        yield Noticed(BY_SIGNAL[number], row, span, kept, rank, None, is_root, rank_at=at)


def _take_field(values: dict[str, Value], row: Row, field: re.Match[str]) -> None:
    begin = field.start("value")
    pattern = {"rank": _RANK, "exitcode": _EXIT}.get(field["name"])
    if pattern is None:
        if field["value"] and field["value"] != "<N/A>":
            values.setdefault(field["name"], Value(field["value"], row.span(*field.span("value"))))
        return
    found = pattern.match(field["value"])
    if found is not None:
        for name, text in found.groupdict().items():
            values.setdefault(name, Value(int(text), row.span(begin + found.start(name), begin + found.end(name))))


def derived(noticed: Noticed) -> Iterator[Noticed]:
    """What an exit code or a signal's name says beyond the row that holds it."""
    if noticed.kind == "worker_failed":
        yield from _by_exitcode(noticed.row, noticed.span, noticed.values, False)
    if noticed.kind in ("worker_failed", "data_worker_died") and (name := noticed.values.get("signal_name")):
        number = BY_NAME.get(str(name.value).strip().lower().rstrip("."))
        if number is not None:
            kept = {
                key: value
                for key, value in noticed.values.items()
                if key in ("pid", "signal_name", "local_rank", "shm")
            }
            yield replace(noticed, kind=BY_SIGNAL[number], values=kept, remedy=None)


def process_table(told: Sequence[Told]) -> dict[int, dict[str, Value]]:
    """Of the table that the kernel prints before it kills for want of memory: pid -> its row's values."""
    table: dict[int, dict[str, Value]] = {}
    for each in told:
        found = _PROCESS.search(each.text) if "]" in each.text else None
        if found is None:
            continue
        pages = Value(int(found["rss_pages"]), each.row.span(*found.span("rss_pages")))
        table.setdefault(int(found["pid"]), {"table_rss_pages": pages})
    return table

"""Python tracebacks in a training's log: whole, with everything they are chained to.

Rule: never cut a traceback. Too much is better than too little: its message goes on until something that
is clearly another line of the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.probes.text import plain_lines

_HEADER = re.compile(r"^(?P<before>.*?)(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::(?: (?P<message>.*))?)?\s*$")
_CHAINED = re.compile(
    r"^(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|-- Process \d+ terminated with the following error:"
    r'|"""|)\s*$'
)
_GROUP_LINE = re.compile(r"^\s*[|+]")
_IGNORED = re.compile(r"^Exception ignored in\b")
_ANNOUNCED = re.compile(r"^Exception in thread |^Exception ignored in\b")
# What a message would not hold at the start of a line.
_ANOTHER_LINE = re.compile(
    r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d"  # a timestamp
    r"|^\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
    r"|^\s*\d+%\|"  # a progress bar
    r"|^\{['\"]"  # a line of metrics
    r"|^(?:step|epoch|iter)\b.*\d"
    r"|^\[orch\] "
    r"|^Exception in thread |^Exception ignored in\b",
    re.IGNORECASE,
)
_MAX_MESSAGE_LINES = 400


@dataclass(frozen=True)
class Traceback:
    text: str
    """As printed, chained ones first, without control sequences."""
    exception: str
    """The line that names what was raised last: `ValueError: too long`. Empty when the log ends before it."""
    exception_type: str
    ignored: bool
    """Python said "Exception ignored in": the program went on."""


def find_traceback(text: str) -> Traceback | None:
    """The last one that mattered: what a program that ended with an exception ended with."""
    found = find_tracebacks(text)
    return next((t for t in reversed(found) if not t.ignored), None)


def find_first_traceback(text: str) -> Traceback | None:
    """The first one that mattered: where several threads or ranks failed, most often the cause of the others."""
    return next((t for t in find_tracebacks(text) if not t.ignored), None)


def find_tracebacks(text: str) -> tuple[Traceback, ...]:
    """Each chain is one."""
    lines = plain_lines(text)
    headers = [index for index, line in enumerate(lines) if _HEADER.match(line)]
    chains: list[list[tuple[int, int, str]]] = []
    end = 0
    for position, start in enumerate(headers):
        if start < end:
            continue  # inside a group that was taken whole
        limit = headers[position + 1] if position + 1 < len(headers) else len(lines)
        chained = bool(chains) and all(_CHAINED.match(line) for line in lines[end:start])
        chained = chained and any(line.strip() for line in lines[end:start])
        end, exception = _block(lines, start, limit)
        if chained:
            chains[-1].append((start, end, exception))
        else:
            chains.append([(start, end, exception)])
    return tuple(_traceback(lines, chain) for chain in chains)


def _traceback(lines: list[str], chain: list[tuple[int, int, str]]) -> Traceback:
    start, end, exception = chain[0][0], chain[-1][1], chain[-1][2]
    before = lines[start - 1] if start else ""
    if _ANNOUNCED.match(before):
        start -= 1
    matched = _EXCEPTION.match(exception)
    return Traceback(
        text="\n".join(lines[start:end]).rstrip(),
        exception=exception,
        exception_type=matched["type"] if matched else "",
        ignored=bool(_IGNORED.match(before)),
    )


def _block(lines: list[str], start: int, limit: int) -> tuple[int, str]:
    """(index behind its last line, exception line) of the traceback whose header is at `start`."""
    header = _HEADER.match(lines[start])
    before = header["before"] if header else ""
    if "+" in before or "|" in before:
        group = _group(lines, start)
        if group is not None:
            return group
    prefix = _prefix(before, lines[start + 1] if start + 1 < len(lines) else "")
    index = start + 1
    while index < limit and _stripped(lines[index], prefix).startswith(" "):
        index += 1
    if index >= limit:
        return index, ""
    exception = _stripped(lines[index], prefix).rstrip()
    if _ANOTHER_LINE.match(exception):
        return index, ""  # another thread's output came between
    message_end = index + 1
    last = message_end
    while message_end < limit and message_end - index < _MAX_MESSAGE_LINES:
        line = _stripped(lines[message_end], prefix)
        if _ANOTHER_LINE.match(line) or (line.strip() and _CHAINED.match(line)):
            break
        message_end += 1
        if line.strip():
            last = message_end
    return last, exception


def _prefix(before: str, following: str) -> str:
    """What stands before every line, like `[rank0]: `; not what a progress bar left before the first one."""
    return before if before and following.startswith(before) else ""


def _stripped(line: str, prefix: str) -> str:
    return line[len(prefix) :] if prefix and line.startswith(prefix) else line


def _group(lines: list[str], start: int) -> tuple[int, str] | None:
    """An exception group is drawn as a tree: every line of it begins with `|` or `+`."""
    index = start + 1
    exception = ""
    while index < len(lines) and _GROUP_LINE.match(lines[index]):
        bare = lines[index].lstrip(" |+")
        named = _EXCEPTION.match(bare)
        if named and not bare.startswith("File ") and re.match(r"^[\s|+]*\| [^ |]", lines[index]):
            exception = bare.rstrip()
        index += 1
    return (index, exception) if index > start + 1 else None

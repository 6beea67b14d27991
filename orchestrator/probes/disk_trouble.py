"""Words that say a file system could not be read or written: full, over quota, gone, read-only, broken.

Rule: a line is searched; the same trouble with the same names is told once.
"""

from __future__ import annotations

import re

from orchestrator.probes.failures.system import NO_SPACE
from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.log_reading import read_log
from orchestrator.probes.spans import Piece, Span, Value

MAX_LINE = 4096
CONTEXT = 4000

_STALE = "mount it anew (umount -l, then mount); what had files open there must be started again"
_TOOL = re.compile(
    r"(?:^|[\s;])(?P<tool>df|du|find|ls|stat|cp|mv|tar|cat|touch|mkdir|tee|rsync|dd|sh|bash): "
    r"(?:\[[a-z]{3,12}\] )?(?:(?:cannot|failed to|error|write|open|mkstemp|rename) [a-z]{2,12}(?: [a-z]{2,12}){0,3} )?"
    r"(?:Cannot [a-z]{2,12}|[‘'\"`](?P<quoted>[^’'\"\n]{1,400})[’'\"]|(?P<path>[^\s:‘'\"`][^:\n]{0,400}?)): "
    r"(?P<error>[A-Z][^:\n]{3,80})$"
)
_IN_WORDS = re.compile(r"[^‘'\"«\n]{3,80} [‘'\"«](?P<path>[^’'\"»\n]{1,400})[’'\"»]")
"""What was tried, in another language than the tool's own."""
_ERRORS: tuple[tuple[str, str, str], ...] = (
    ("Stale", "stale_mount", _STALE),
    ("Transport endpoint", "dead_mount", "the program behind the mount has died: umount -l, then mount it anew"),
    ("Permission denied", "unreadable", "ask as root"),
    ("Operation not permitted", "unreadable", "ask as root"),
    ("No such file", "missing", "the path is not there: is it mounted?"),
    ("Input/output error", "io_error", "look at the host's kernel log (dmesg) for the disk; check that it is not full"),
    (NO_SPACE, "disk_full", "free space, and inodes: df -h; df -i"),
    ("Disk quota", "disk_quota", "free space, or have the quota raised: quota -s"),
    ("Read-only", "read_only", "dmesg says why the kernel made it read-only"),
    ("Host is down", "dead_mount", "the server of the mount does not answer"),
    ("Connection timed out", "dead_mount", "the server of the mount does not answer"),
)
_NO_TABLE = re.compile(r"df: cannot read table of mounted file systems")
_NO_FILE_SYSTEM = re.compile(r"df: no file systems processed")

WRITE_KINDS = {
    *("disk_full", "disk_quota", "shm_full", "checkpoint_write", "io_error", "read_only", "stale_mount", "dead_mount")
}
"""Of the failures that a log may tell of, those of a file system."""
_CHECKPOINT = re.compile(r"[Ss]aving [a-z ]{0,30}checkpoint[a-z ]{0,20} (?:to|at|in) (?P<folder>[^\s'\"]{1,400})")
_BAR = re.compile(r"\| (?P<step>\d{1,12})/(?P<steps>\d{1,12}) \[")


def tool_error(line: Piece) -> Finding | None:
    """`df: /mnt/nfs: Stale file handle` and its like. Names tool and path."""
    text = line.text[:MAX_LINE].rstrip()
    for pattern, kind, way_out in (
        (_NO_TABLE, "no_mount_table", "the disks' state is unknown: is /proc mounted in the container?"),
        (_NO_FILE_SYSTEM, "no_mount_table", "none of the paths that were asked for could be told of"),
    ):
        if found := pattern.search(text):
            named = {"tool": Value("df", Span(line.start + found.start(), line.start + found.start() + 2))}
            return finding_at(line, kind, way_out, named)
    found = _TOOL.search(text)
    if found is None:
        return None
    kind, way_out = next(
        ((kind, way_out) for words, kind, way_out in _ERRORS if re.search(words, found["error"])), ("failed", "")
    )
    named = {"tool": _value(line, found, "tool"), "error": _value(line, found, "error")}
    if found["quoted"]:
        named["path"] = _value(line, found, "quoted")
    elif inner := _IN_WORDS.fullmatch(text, *found.span("path")) if found["path"] else None:
        named["path"] = _value(line, inner, "path")
    elif found["path"]:  # `tar: Cannot write: ...` names none
        named["path"] = _value(line, found, "path")
    return finding_at(line, kind, way_out, named)


def write_troubles(text: str) -> tuple[Finding, ...]:
    """What programs say when they could not write, as a run's log is read; with the checkpoint that was being saved,
    and the step, where these are told."""
    found = []
    for failure in read_log(text).failures:
        begin = text.rfind("\n", 0, failure.span.start) + 1
        if failure.kind in WRITE_KINDS and not _is_tools(text, begin):
            spans = {"kind": failure.span, "said": failure.spans["line"]}
            trouble = Finding(failure.kind, failure.line, failure.values, failure.remedy, spans=spans)
            found.append(_in_context(trouble, text, begin))
    return tuple(found)


def _is_tools(text: str, begin: int) -> bool:
    end = text.find("\n", begin)
    return tool_error(Piece(text[begin : len(text) if end < 0 else end], begin)) is not None


def _in_context(trouble: Finding, text: str, at: int) -> Finding:
    begin = max(0, at - CONTEXT)
    before = Piece(text[begin:at], begin)
    named = dict(trouble.named)
    for pattern in (_CHECKPOINT, _BAR):
        last = max(pattern.finditer(before.text), key=lambda found: found.start(), default=None)
        if last is not None:
            named.update({name: _value(before, last, name) for name in last.groupdict()})
    return Finding(trouble.kind, trouble.said, named, trouble.way_out, spans=trouble.spans)


def _value(line: Piece, found: re.Match[str], group: str) -> Value:
    word = found[group]
    number = word.isdecimal() and len(word) <= 15
    return Value(int(word) if number else word, line.place(found, group))

"""PURE: one difference in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.diagnosis.code import LineDiff
from orchestrator.diagnosis.diff import Difference
from orchestrator.reports.table import bytes_text

NAMED_FILES = 3
BYTES = ("memory limit", "/dev/shm")


def difference_words(one: Difference, file: LineDiff | None = None) -> str:
    """file: the lines that changed, where it is about a file."""
    if one.kind == "edited" and one.a is None and file is not None and file.change.a is None:
        return f"{one.name} was added after the deploy (+{file.added} lines)"
    words = {
        "edited": _edited,
        "expected": _expected,
        "package_edits": _package_edit,
        "packages": _package,
        "stack": _package,
        "secrets": _secret,
        "replaced": _replaced,
        "compiler": _compiler,
        "data": _plain,
        "model": _plain,
        "driver": _plain,
        "torch": _plain,
        "lock": _plain,
    }.get(one.kind, _named)(one)
    return words + (f" (+{file.added} -{file.removed} lines)" if file is not None and file.lines else "")


def code_words(found: Sequence[Difference], commits: Sequence[str] | None) -> str:
    """All that differs of the code, in one line."""
    files = [one for one in found if one.part == "code"]
    git = {one.name: one for one in found if one.part == "git"}
    told = []
    for verb, names in {
        "changed": [one.name for one in files if one.a is not None and one.b is not None],
        "added": [one.name for one in files if one.a is None],
        "removed": [one.name for one in files if one.b is None],
    }.items():
        if names:
            more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
            told.append(f"{', '.join(names[:NAMED_FILES])}{more} {verb}")
    if not files:
        told.append("the release (its files are not known)" if _has(found, "release") else "the same files")
    commit = git.get("commit")
    if commit is not None:
        count = "" if commits is None else f" ({len(commits)} commit{'s' if len(commits) != 1 else ''})"
        told.append(f"commit {_short(commit.a)} -> {_short(commit.b)}{count}")
    told += [f"{name} {git[name].a} -> {git[name].b}" for name in ("branch", "not committed") if name in git]
    return "; ".join(told)


def _has(found: Sequence[Difference], part: str) -> bool:
    return any(one.part == part for one in found)


def _named(one: Difference) -> str:
    if one.name in BYTES:
        a, b = (
            bytes_text(int(value)) if value and re.fullmatch(r"[0-9]{1,18}", value) else value
            for value in (one.a, one.b)
        )
        return f"{one.name} {a} -> {b}"
    if one.a is None:
        return f"{one.name} added: {_short(one.b)}"
    if one.b is None:
        return f"{one.name} removed (was {_short(one.a)})"
    return f"{one.name} {_short(one.a)} -> {_short(one.b)}"


def _plain(one: Difference) -> str:
    return f"{one.a} -> {one.b}"


def _edited(one: Difference) -> str:
    if one.b is None:
        return f"{one.name} is again as it was deployed"
    done = "deleted" if one.b == "missing" else "edited"
    return f"{one.name} {done} since it was deployed" + ("" if one.a is None else ", otherwise than before")


def _package_edit(one: Difference) -> str:
    if one.b is None:
        return f"{one.name} is again as it was installed"
    if one.b == "missing":
        return f"{one.name} deleted since its package was installed"
    return f"{one.name} edited in the environment" + ("" if one.a is None else ", otherwise than before")


def _expected(one: Difference) -> str:
    a, b = (f"{(value or '')[:12]} {(value or '').partition(' ')[2]}" for value in (one.a, one.b))
    return f"{one.name} {a} -> {b}"


def _package(one: Difference) -> str:
    if one.part == "builds":
        return f"{one.name} has other files under the same version"
    if one.part == "origins":
        return f"{one.name} from {one.b or 'an index'} (was from {one.a or 'an index'})"
    if one.a is None:
        return f"{one.name} {one.b} added"
    if one.b is None:
        return f"{one.name} {one.a} removed"
    return f"{one.name} {one.a} -> {one.b}"


def _secret(one: Difference) -> str:
    if one.a is None or one.b is None:
        return f"{one.name} {'added' if one.a is None else 'removed'} (value not shown)"
    return f"{one.name} has another value (not shown)"


def _replaced(one: Difference) -> str:
    if one.b is None:
        return f"{one.name} is torch's own again (was {one.a})"
    return f"{one.name} is replaced by {one.b}" + ("" if one.a is None else f" (was {one.a})")


def _compiler(one: Difference) -> str:
    return f"{one.name} {'default' if one.a is None else one.a} -> {'default' if one.b is None else one.b}"


def _short(text: str | None) -> str:
    """A hash by its beginning."""
    text = text or "none"
    return text[:12] if len(text) in (40, 64) and all(letter in "0123456789abcdef" for letter in text) else text

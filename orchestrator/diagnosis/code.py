"""Which files of the code differ between two runs, and in which lines. PURE.

Rule: what counts is what lay on the disk: a file edited in place after it was deployed is the edited one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.ledger.fingerprint import sections
from orchestrator.probes.text import plain_lines
from orchestrator.probes.values import as_mapping, as_str

MISSING = "missing"
MAX_LINES = 2000
NOT_FOUND = "its content is no longer there: the release was pruned, or the file is too large"


@dataclass(frozen=True)
class FileChange:
    path: str
    """In the release, or absolute."""
    a: str | None
    """sha256 (with `+x`), `-> target` of a link; None: it is not there."""
    b: str | None

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        """sha256 of each side; None where there is no content."""
        return _sha256(self.a), _sha256(self.b)


@dataclass(frozen=True)
class LineDiff:
    change: FileChange
    lines: tuple[str, ...]
    """Unified, with its two heads; empty when why_not says something."""
    why_not: str | None

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.lines[2:])

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.lines[2:])


def changed_files(a: object, b: object) -> tuple[FileChange, ...]:
    """a, b: fingerprint.json of each. Only what both of them tell."""
    found = []
    files_a, files_b = _on_disk(a), _on_disk(b)
    if files_a is not None and files_b is not None:
        found += [FileChange(path, files_a.get(path), files_b.get(path)) for path in {*files_a, *files_b}]
    expected_a, expected_b = _expected(a), _expected(b)
    known = {change.path for change in found}
    for path in ({*expected_a} & {*expected_b}) - known:
        found.append(FileChange(path, expected_a[path], expected_b[path]))
    return tuple(sorted((one for one in found if one.a != one.b), key=lambda one: one.path))


def line_diff(change: FileChange, contents: Mapping[str, bytes]) -> LineDiff:
    """contents: sha256 -> bytes, of those that were found."""
    sides: list[list[str]] = []
    for token, sha256 in zip((change.a, change.b), change.hashes, strict=True):
        if token is None:
            sides.append([])
        elif token.startswith("-> "):
            sides.append([f"link {token}"])
        elif sha256 is None or sha256 not in contents:
            return LineDiff(change, (), NOT_FOUND)
        elif b"\0" in contents[sha256]:
            return LineDiff(change, (), "it is no text")
        else:
            sides.append(plain_lines(contents[sha256].decode("utf-8", "replace")))
    if all(side[-1:] == [""] for side in sides):
        # What follows the last line's end is no line; difflib would take it for one that changed in a long file.
        sides = [side[:-1] for side in sides]
    import difflib  # only where a file changed

    lines = list(difflib.unified_diff(sides[0], sides[1], f"a/{change.path}", f"b/{change.path}", lineterm=""))
    if not lines:
        return LineDiff(change, (), "only whether it may be executed")
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... {len(lines) - MAX_LINES} more lines"]
    return LineDiff(change, tuple(lines), None)


def commit_of(record: object) -> str | None:
    release = as_mapping(sections(record).get("release"))
    return as_str(as_mapping(release.get("git")).get("commit"))


def release_path(record: object) -> str | None:
    """Where the release lies on the target."""
    return as_str(as_mapping(sections(record).get("deployed")).get("path"))


def _on_disk(record: object) -> dict[str, str] | None:
    """Path -> token; None when it is not known."""
    raw = sections(record)
    listing, edited = as_mapping(raw.get("release")).get("listing"), raw.get("edited")
    if not isinstance(listing, dict) or not isinstance(edited, dict):
        return None
    files = {path: token for path, token in {**listing, **edited}.items() if isinstance(token, str)}
    return {path: token for path, token in files.items() if token != MISSING}


def _expected(record: object) -> dict[str, str | None]:
    found = {}
    for path, about in as_mapping(sections(record).get("expected")).items():
        token = as_str(as_mapping(about).get("found"))
        found[path] = None if token == MISSING else token
    return found


def _sha256(token: str | None) -> str | None:
    digest = (token or "").removesuffix("+x")
    return digest if len(digest) == 64 else None

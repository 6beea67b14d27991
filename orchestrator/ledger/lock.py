"""PURE: a lock (requirements with versions and hashes, as `uv pip compile --generate-hashes` writes them), what it asks
for on one target, and which wheels that is.

Rule: the environment's name is a hash over what the lock says, not how it is laid out: comments, order and line breaks
make no other environment; another version, hash, marker or Python does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from orchestrator.errors import InventoryError
from orchestrator.probes.interpreter import Interpreter

NAME_DIGITS = 32
OPTION = re.compile(r"\s--hash[= ]sha256:([0-9a-f]{64})(?=\s|$)")
INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "-i ", "-f ")
TEMPLATE = "# TEMPLATE"
HOW = "make it anew: uv pip compile --generate-hashes -o LOCK requirements.in"


@dataclass(frozen=True)
class Requirement:
    name: str
    """Normalised."""
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    """sha256, hex, sorted."""

    def line(self) -> str:
        """As pip reads it, without the marker."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)])


@dataclass(frozen=True)
class Lock:
    file: str
    requirements: tuple[Requirement, ...]

    @property
    def sha256(self) -> str:
        said = [[one.name, one.version, one.marker, one.hashes] for one in self.requirements]
        return _hash(said)

    def environment(self, python: str) -> str:
        """The name of the environment that this lock and this interpreter (as the inventory names it) make."""
        return _hash([self.sha256, python])[:NAME_DIGITS]

    def text(self) -> str:
        """The lock in its plainest form: what is sent."""
        lines = []
        for one in self.requirements:
            pinned, _, hashes = one.line().partition(" ")
            lines.append(f"{pinned} ; {one.marker} {hashes}" if one.marker else f"{pinned} {hashes}")
        return "".join(f"{line}\n" for line in lines)

    def wanted(self, interpreter: Interpreter) -> tuple[Requirement, ...]:
        """What of it belongs on this target. Raises InventoryError for a marker that says nothing here, and for two
        versions of one package."""
        environment = dict(interpreter.markers)
        found: dict[str, Requirement] = {}
        told = []
        for one in self.requirements:
            if one.marker is not None and not _applies(one, environment, self.file):
                continue
            other = found.setdefault(one.name, one)
            if not _same(other.version, one.version):
                raise InventoryError(
                    f"{self.file}: {one.name} is asked for in two versions on this target",
                    evidence=f"{other.version} and {one.version}",
                    way_out=HOW,
                )
            told.append(one)
        return tuple(told)


def parse_lock(text: str, file: str) -> Lock:
    """Raises InventoryError naming the line."""
    text = text.removeprefix("\ufeff")
    if text.startswith(TEMPLATE):
        head = text.partition("\n")[0].removeprefix("#").strip()
        raise InventoryError(
            f"{file} is a template, not a lock", evidence=head, way_out="the file says how to make it one"
        )
    found: dict[tuple[str, str, str | None], Requirement] = {}
    for number, line in _logical_lines(text):
        if line.startswith(INDEX_OPTIONS):
            continue  # where the wheels come from changes nothing: their hashes say what they are
        one = _requirement(line, f"{file}:{number}")
        found[one.name, one.version, one.marker] = one
    if not found:
        raise InventoryError(f"{file} names no package", way_out=HOW)
    return Lock(file, tuple(sorted(found.values(), key=lambda one: (one.name, one.version, one.marker or ""))))


def choose_wheel(one: Requirement, names: Iterable[str], interpreter: Interpreter) -> list[str]:
    """Of these file names, those that fit it, best first."""
    ranks = {tag: rank for rank, tag in enumerate(interpreter.tags())}
    fitting: list[tuple[int, tuple[int, str], str]] = []
    for name in names:
        try:
            project, version, build, tags = parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None and project == one.name and _same(str(version), one.version):
            fitting.append((rank, (-build[0], build[1]) if build else (1, ""), name))
    return [name for _, _, name in sorted(fitting)]


def _applies(one: Requirement, environment: dict[str, str], file: str) -> bool:
    try:
        return Marker(one.marker or "").evaluate(environment)
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise InventoryError(
            f"{file}: the marker of {one.name} cannot be told from a target",
            evidence=f"{one.marker}: {error}",
            way_out=HOW,
        ) from error


def installed(requirements: Iterable[Requirement]) -> Mapping[str, str]:
    return {one.name: one.version for one in requirements}


def _same(first: str, second: str) -> bool:
    return Version(first) == Version(second)


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:  # also of `1.*`
        return False


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode("ascii")).hexdigest()


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """(number of its first line, the line) without comments; a backslash goes on on the next line."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"(^|\s)#.*", "", line).rstrip()
        first = first if parts else number
        if bare.endswith("\\"):
            parts.append(bare[:-1])
            continue
        joined = " ".join([*parts, bare]).strip()
        parts = []
        if joined:
            yield first, joined
    if parts:
        yield first, " ".join(parts).strip()


def _requirement(line: str, where: str) -> Requirement:
    hashes = tuple(sorted(set(OPTION.findall(line))))
    bare = OPTION.sub("", line).strip()
    shown = re.sub(r"//[^/\s]*@", "//", line)[:200]  # without a login
    if bare.startswith("-") or " --" in bare:
        raise InventoryError(f"{where}: a lock holds packages and their hashes only", evidence=shown, way_out=HOW)
    try:
        parsed = Parsed(bare)
    except InvalidRequirement as error:
        raise InventoryError(f"{where}: not a requirement", evidence=shown, way_out=HOW) from error
    pins = list(parsed.specifier)
    if parsed.url or len(pins) != 1 or pins[0].operator not in ("==", "===") or not _is_version(pins[0].version):
        raise InventoryError(f"{where}: {parsed.name} has no exact version", evidence=shown, way_out=HOW)
    if not hashes:
        raise InventoryError(f"{where}: {parsed.name} has no sha256", evidence=shown, way_out=HOW)
    marker = str(parsed.marker) if parsed.marker else None
    return Requirement(canonicalize_name(parsed.name), pins[0].version, marker, hashes)

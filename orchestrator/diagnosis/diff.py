"""What differs between two runs, the likeliest cause first.

Rule: only what was observed on both sides can differ. What was not is told apart, last; it is never taken for equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.diagnosis.comparable import Facts, Values
from orchestrator.probes.compile_cache import CacheFolder, CompileCache

KINDS = {
    "edited": "edited in place",
    "expected": "expected file",
    "package_edits": "package edited",
    "torch": "torch",
    "replaced": "replaced function",
    "stack": "package torch uses",
    "cache": "compile cache",
    "code": "code",
    "driver": "driver",
    "gpus": "GPUs",
    "packages": "package",
    "lock": "environment",
    "python": "python",
    "loaded": "loaded version",
    "compiler": "torch setting",
    "variables": "variable",
    "spec": "run",
    "settings": "setting",
    "model": "model",
    "data": "data",
    "limits": "limit",
    "container": "container",
    "machine": "machine",
    "secrets": "secret variable",
    "observed": "observed",
}
"""Kind -> how it is called. In the order of risk: what was seen to cost a run its speed, or its life, comes first."""
RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
OUTSIDE_IDENTITY = ("cache", "observed")
STACK = re.compile(
    r"torch.*|triton.*|pytorch-triton.*|nvidia-.*|cuda-.*|flash-attn.*|flashinfer.*|xformers|transformers|accelerate"
    r"|sglang.*|sgl-kernel|vllm.*|deepspeed|apex|transformer-engine.*|numpy"
)
"""Packages that a training's speed is known to hang on."""
CACHE_LOST = 0.5
"""A cache that holds less than this part of what the other held is a difference; one that grew is as it should be."""
OF_CODE = ("code", "release", "git")
ABSENT_IS_UNKNOWN = ("expected", "loaded", "observed")

LOADED_SAID_BY = {"python": {("python", "version")}, "cuda": {("torch", "torch")}}
CONFIG_SAID_BY = {
    "memory": {("limits", "memory limit")},
    "cores": {("limits", "CPU limit"), ("limits", "CPUs")},
    "cpulimit": {("limits", "CPU limit")},
}


@dataclass(frozen=True)
class Difference:
    kind: str
    name: str
    a: str | None
    """None: it is not there."""
    b: str | None
    part: str = ""
    """The section it was found in, where several make one kind: packages, origins, builds; code, release, git."""

    @property
    def identity(self) -> bool:
        """False: recorded, and outside of what makes a run the same as another."""
        return self.kind not in OUTSIDE_IDENTITY

    @property
    def rank(self) -> int:
        return RANKS[self.kind]


@dataclass(frozen=True)
class NotObserved:
    kind: str
    name: str
    """Empty: all of the kind."""
    a: bool
    """It was not observed in A."""
    b: bool


@dataclass(frozen=True)
class Comparison:
    differences: tuple[Difference, ...]
    """The most risky first."""
    observed: tuple[Difference, ...]
    """Outside identity, and no cause by itself: another boot, another host name."""
    not_observed: tuple[NotObserved, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


def compare(a: Facts, b: Facts, cache_a: CompileCache | None, cache_b: CompileCache | None) -> Comparison:
    found: list[Difference] = []
    unknown: list[NotObserved] = []
    for section in sorted({*a, *b}):
        kind = section.partition(":")[0]
        here, there = a.get(section), b.get(section)
        if here is None or there is None:
            unknown.append(NotObserved(_kind(kind, ""), _of(section), here is None, there is None))
        else:
            _compare_section(kind, here, there, found, unknown)
    found += lost_cache(cache_a, cache_b)
    if cache_a is None or cache_b is None:
        unknown.append(NotObserved("cache", "", cache_a is None, cache_b is None))
    told = sorted(_without_implied(found), key=lambda one: (one.rank, one.name, one.part))
    return Comparison(
        tuple(one for one in told if one.kind != "observed"),
        tuple(one for one in told if one.kind == "observed"),
        _merged(unknown),
    )


def _merged(unknown: list[NotObserved]) -> tuple[NotObserved, ...]:
    """Each thing once."""
    sides: dict[tuple[str, str], tuple[bool, bool]] = {}
    for one in unknown:
        a, b = sides.get((one.kind, one.name), (False, False))
        sides[one.kind, one.name] = (a or one.a, b or one.b)
    found = [NotObserved(kind, name, a, b) for (kind, name), (a, b) in sides.items()]
    return tuple(sorted(found, key=lambda one: (RANKS[one.kind], one.name)))


def lost_cache(a: CompileCache | None, b: CompileCache | None) -> Iterator[Difference]:
    """Folders of which B holds less than half of what A did."""
    if a is None or b is None:
        return
    before = {folder.name: folder for folder in a.folders}
    for folder in b.folders:
        was = before.get(folder.name)
        if was is None or not was.bytes or (folder.exists and not folder.complete):
            continue
        if not folder.exists or (folder.bytes or 0) < CACHE_LOST * was.bytes:
            yield Difference("cache", folder.name, _held(was), _held(folder))


def _held(folder: CacheFolder) -> str:
    if not folder.exists:
        return "not there"
    graphs = f", {folder.entries} graphs" if folder.entries is not None else ""
    return f"{folder.bytes} bytes, {folder.files} files{graphs}"


def _compare_section(section: str, a: Values, b: Values, found: list[Difference], unknown: list[NotObserved]) -> None:
    for name in sorted({*a, *b}):
        kind = _kind(section, name)
        lacking = section in ABSENT_IS_UNKNOWN
        no_a, no_b = ((name not in side and lacking) or (name in side and side[name] is None) for side in (a, b))
        if no_a or no_b:
            if not (no_a and no_b):
                unknown.append(NotObserved(kind, name, no_a, no_b))
        elif a.get(name) != b.get(name):
            found.append(Difference(kind, name, a.get(name), b.get(name), section))


def _kind(section: str, name: str) -> str:
    if section in ("packages", "origins", "builds"):
        return "stack" if STACK.fullmatch(name) else "packages"
    return "code" if section in OF_CODE else section


def _of(section: str) -> str:
    """What of a kind a section is, where that says anything to a person."""
    part = section.partition(":")[2]
    if section in ("origins", "builds", "release", "git"):
        return section
    return "" if section.startswith(("secrets", "compiler")) else part


def _without_implied(found: list[Difference]) -> Iterator[Difference]:
    """A difference that only says another one again is left out."""
    seen = {(one.part or one.kind, one.name) for one in found}
    files = {name for part, name in seen if part in ("code", "edited")}
    unexpected = {one.name for one in found if one.kind == "expected" and _verdict(one.a) != _verdict(one.b)}
    of_files = files - unexpected
    any_code = any(part == "code" for part, _ in seen)
    for one in found:
        again = {"expected": one.name in of_files, "edited": one.name in unexpected, "release": any_code}
        if not again.get(one.part) and not seen & _said_by(one):
            yield one


def _verdict(expected: str | None) -> str:
    """Whether a file was as expected, without its hash."""
    return (expected or "").partition(" ")[2]


def _said_by(one: Difference) -> set[tuple[str, str]]:
    """(part, name) of differences that say this one, too."""
    name = one.name
    said = {
        "origins": {("packages", name)},
        "builds": {("packages", name), ("origins", name), ("torch", name)},
        "packages": {("torch", name)},
        "loaded": {("packages", name), ("torch", name), *LOADED_SAID_BY.get(name, ())},
        "container": CONFIG_SAID_BY.get(name, set()),
    }
    return said.get(one.part, set())

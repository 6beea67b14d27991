"""PURE: an interpreter on a target, as the agent's op env_facts tells of it, and which wheels fit it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags

from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_bool, as_mapping, as_str

OLDEST_GLIBC_MINOR = 5
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Minor version of glibc 2 -> the platform's older name."""


@dataclass(frozen=True)
class Interpreter:
    executable: str
    version: str
    """`3.12.4`"""
    platforms: tuple[str, ...]
    """Of wheels, best first: manylinux_2_39_x86_64 down to linux_x86_64."""
    free_threaded: bool
    markers: Mapping[str, str]
    """The environment of PEP 508 markers."""

    @property
    def version_numbers(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def tags(self) -> list[Tag]:
        """What it takes, best first."""
        major, minor = self.version_numbers
        abis = [f"cp{major}{minor}t"] if self.free_threaded else None
        platforms = list(self.platforms)
        found = list(cpython_tags((major, minor), abis, platforms))
        return found + list(compatible_tags((major, minor), f"cp{major}{minor}", platforms))


def parse_interpreter(answer: object) -> Interpreter | str:
    """Of one program. The text says why there is none that orch can make an environment with."""
    facts = as_mapping(answer)
    error = as_str(facts.get("error"))
    if error is not None:
        return one_line(error)
    executable, version = as_str(facts.get("executable")), as_str(facts.get("version"))
    platform = as_str(facts.get("platform"))
    markers = {name: value for name, value in as_mapping(facts.get("markers")).items() if isinstance(value, str)}
    if executable is None or platform is None or not re.fullmatch(r"\d+\.\d+\.\d+", version or ""):
        return "it does not say what it is"
    if markers.get("implementation_name") != "cpython" or not platform.startswith("linux-"):
        return one_line(f"{markers.get('implementation_name')} on {platform}: only CPython on Linux is known")
    return Interpreter(
        executable=executable,
        version=version or "",
        platforms=_platforms(platform.removeprefix("linux-"), as_str(facts.get("libc"))),
        free_threaded=as_bool(facts.get("free_threaded")) is True,
        markers=markers,
    )


def _platforms(machine: str, libc: str | None) -> tuple[str, ...]:
    found = re.fullmatch(r"glibc 2\.(\d+).*", libc or "")
    names: list[str] = []
    if found:
        for minor in range(int(found[1]), OLDEST_GLIBC_MINOR - 1, -1):
            names.append(f"manylinux_2_{minor}_{machine}")
            if minor in LEGACY:
                names.append(f"{LEGACY[minor]}_{machine}")
    return (*names, f"linux_{machine}")

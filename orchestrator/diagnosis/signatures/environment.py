"""environment-polluted, cuda-major, missing-library: is the Python environment what it was, and whole?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.diagnosis.case import Case, differences
from orchestrator.diagnosis.diff import Difference
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING, Finding
from orchestrator.diagnosis.signatures.words import (
    difference_text,
    differences_text,
    failure_lines,
    failures,
    rate_line,
)
from orchestrator.probes.environment_finding import ERROR, NOTE, EnvironmentFinding
from orchestrator.probes.text import one_line

SHOWN = 6
STACK_KINDS = ("torch", "stack", "package_edits", "driver", "loaded", "lock", "python")
"""Differences that were seen to cost a run its speed."""
LIBRARY = ("library", "library_broken", "requirement")
OF_CUDA = ("foreign_cuda", "driver")
OF_IMPORT = ("missing_library", "abi_mismatch", "import_error")


def missing_library(case: Case) -> Iterator[Finding]:
    by_log = [one for one in failures(case, *OF_IMPORT) if not one.survived]
    by_check = [one for one in case.environment or () if one.kind in LIBRARY and one.severity == ERROR]
    if not by_log and not by_check:
        return
    named = [str(one.values[name].value) for one in by_log for name in ("library", "module") if name in one.values]
    packages = [str(one.values["package"].value) for one in by_log if "package" in one.values]
    packages += [one.package for one in by_check if one.package is not None]
    evidence = [line for one in by_log for line in failure_lines(case, one)]
    evidence += [one_line(one.text, 200) for one in by_check[:SHOWN]]
    removed = [one for one in case.changed("stack", "packages") if one.b is None and one.part == "packages"]
    evidence += [f"it was there at the last good run: {difference_text(one)}" for one in removed[:SHOWN]]
    commands = list(dict.fromkeys(one.way_out for one in by_check if one.way_out))
    what = ", ".join(dict.fromkeys(named)) or "a library that torch loads"
    brings = ", ".join(dict.fromkeys(packages))
    remedy = next((one.remedy for one in by_log if one.remedy), "")
    yield Finding(
        "missing-library",
        CRITICAL,
        f"{what} is missing" + (f"; {brings} brings it" if brings else ""),
        tuple(evidence),
        "a package that it came with was removed, or replaced by another build",
        "install all of it at once, from the lock or the versions of the last good run, not one library after another"
        if commands or brings
        else remedy or "find the package that brings it",
        _install(case, commands),
    )


def _install(case: Case, commands: Sequence[str]) -> str:
    if case.payload is not None and case.payload.environment is not None:
        return case.orch("env", "sync", "--rebuild")
    if commands:
        return commands[0]
    return case.orch("env", "check")


def polluted(case: Case) -> Iterator[Finding]:
    changed = [one for one in case.changed(*STACK_KINDS, "packages") if one.part != "release"]
    check = [one for one in case.environment or () if one.kind not in (*LIBRARY, *OF_CUDA) and one.severity != NOTE]
    wrong = [one for one in check if one.severity == ERROR]
    if not changed and not wrong:
        return
    severity = WARNING if wrong or _is_risky(case) else INFO
    yield Finding(
        "environment-polluted",
        severity,
        _count(changed, wrong),
        (*differences_text(changed), *_texts(wrong), *(rate_line(case) if changed else ())),
        "something was installed into, or taken out of, the environment that the training runs in",
        *_back(case),
    )


def _is_risky(case: Case) -> bool:
    """Somebody changed by hand what torch needs: under a run that does not show yet what it cost, or since."""
    since = differences(case.since, "torch", "stack", "package_edits")
    if since and not differences(case.since, "lock"):
        return True
    changed = differences(case.comparison, *STACK_KINDS)
    by_lock = any(one.kind == "lock" for one in changed) and not any(one.kind == "package_edits" for one in changed)
    return bool(changed) and not by_lock and not case.does_well


def _count(changed: Sequence[Difference], wrong: Sequence[EnvironmentFinding]) -> str:
    if changed:
        torch = next((one for one in changed if one.kind == "torch"), None)
        first = difference_text(torch or changed[0])
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"the environment is not that of the last good run: {first}{more}"
    return f"the environment is not what its lock or baseline says: {one_line(wrong[0].text, 120)}" + (
        f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    )


def _texts(found: Sequence[EnvironmentFinding]) -> tuple[str, ...]:
    more = (f"and {len(found) - SHOWN} more: orch env check",) if len(found) > SHOWN else ()
    return (*(one_line(one.text, 200) for one in found[:SHOWN]), *more)


def _back(case: Case) -> tuple[str, str]:
    if case.payload is not None and case.payload.environment is not None:
        return "build the environment anew from its lock, and launch in that", case.orch("env", "sync", "--rebuild")
    return (
        "put back the versions of the last good run all at once (it lists them), or make an environment from a lock "
        "beside it; remove nothing by suspicion",
        case.orch("diff"),
    )


def cuda_major(case: Case) -> Iterator[Finding]:
    found = [one for one in case.environment or () if one.kind in OF_CUDA and one.severity != NOTE]
    lines = [one_line(one.text, 200) for one in found]
    torch = next(iter(case.changed("torch")), None)
    majors = [re.search(r"CUDA (\d+)", side or "") for side in (torch.a, torch.b)] if torch is not None else []
    switched = len(majors) == 2 and all(majors) and len({major[1] for major in majors if major}) == 2
    if switched and torch is not None:
        lines.insert(0, difference_text(torch))
    if not lines:
        return
    wrong = (switched and not case.does_well) or any(one.severity == ERROR for one in found)
    way_out = next((one.way_out for one in found if one.way_out), None)
    yield Finding(
        "cuda-major",
        WARNING if wrong else INFO,
        "torch was built for another CUDA major than before" if switched else "CUDA libraries of two majors are mixed",
        tuple(lines[:SHOWN]),
        "a package was installed that brought its own CUDA libraries, or torch came from another index",
        "take torch and its libraries from one index and one CUDA major; do not uninstall nvidia packages by "
        "suspicion: their files lie over one another's",
        case.orch("env", "sync", "--rebuild")
        if case.payload is not None and case.payload.environment is not None
        else way_out or case.orch("env", "check"),
    )

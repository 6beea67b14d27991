"""PURE: what is wrong with an environment: against its lock or baseline, against its own RECORDs, against the machine.

Rule: a finding says what to do. What was not looked at is a note, so that silence means "looked at, and sound".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from packaging.version import InvalidVersion, Version

from orchestrator.probes.environment import EnvironmentFacts, Expectation, Installed, Wanted
from orchestrator.probes.environment_cuda import cuda_findings
from orchestrator.probes.environment_finding import ERROR, NOTE, WARNING, EnvironmentFinding, repair
from orchestrator.probes.pip_facts import whole_name

SHOWN = 8
OURS = "orch-train"
"""Where orch was set up beside a training, on one machine: no training imports it."""
REBUILD = "orch env sync --rebuild"
_REBUILT = {"extra", "missing", "version", "another_build", "editable", "changed", "gone", "twice", "half_removed"}
"""What orch made is not repaired: it is made once more, beside the one that is there."""
_ORDER = {ERROR: 0, WARNING: 1, NOTE: 2}


def find_wrong(facts: EnvironmentFacts, expected: Expectation | None) -> tuple[EnvironmentFinding, ...]:
    """Errors first."""
    found: list[EnvironmentFinding] = []
    if expected is None:
        found.append(
            EnvironmentFinding(
                "no_baseline",
                NOTE,
                "there is nothing to compare the packages with",
                "orch env baseline   while all is well",
            )
        )
    else:
        found += _compared(facts, expected)
    found += _installed_wrongly(facts)
    found += cuda_findings(facts)
    found += _leaks(facts, expected)
    found += _changed_files(facts)
    found += _platform(facts)
    found += _not_looked_at(facts)
    if expected is not None and expected.kind == "lock":
        found = [replace(one, way_out=REBUILD) if one.kind in _REBUILT else one for one in found]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def passes(findings: Iterable[EnvironmentFinding]) -> bool:
    return not any(finding.severity == ERROR for finding in findings)


def same_version(first: str | None, second: str) -> bool:
    if first is None:
        return False
    try:
        return Version(first) == Version(second)
    except InvalidVersion:
        return first == second


def _compared(facts: EnvironmentFacts, expected: Expectation) -> Iterator[EnvironmentFinding]:
    used = facts.used()
    for key, package in used.items():
        wanted = expected.packages.get(key)
        if wanted is None:
            text = f"{package.name} {package.version or ''}".rstrip() + f" is installed; {expected.label} has none"
            yield EnvironmentFinding("extra", ERROR, text, repair(facts, "uninstall", package.name), key)
        else:
            yield from _differs(package, wanted, facts, expected)
    for key, wanted in expected.packages.items():
        if key not in used:
            text = f"{key} {wanted.version} is not installed; {expected.label} has it"
            yield EnvironmentFinding("missing", ERROR, text, repair(facts, "install", f"{key}=={wanted.version}"), key)
    if expected.path_lines is not None:
        for file, line in facts.path_lines:
            if (file, line) not in expected.path_lines:
                text = f"{file} is new, or changed: {line[:120]}"
                yield EnvironmentFinding("path_file", WARNING, text, f"see who put it there; rm {file} takes it away")


def _differs(
    package: Installed, wanted: Wanted, facts: EnvironmentFacts, expected: Expectation
) -> Iterator[EnvironmentFinding]:
    again = repair(facts, "reinstall", f"{package.name}=={wanted.version}")
    if not same_version(package.version, wanted.version):
        text = f"{package.name} is {package.version or 'of unknown version'}; {expected.label} has {wanted.version}"
        yield EnvironmentFinding(
            "version", ERROR, text, repair(facts, "install", f"{package.name}=={wanted.version}"), package.key
        )
    elif wanted.build is not None and package.build != wanted.build:
        text = f"{package.name} {package.version} was installed anew since {expected.label}, perhaps from another build"
        yield EnvironmentFinding("another_build", ERROR, text, again, package.key)
    if package.editable and not wanted.editable:
        text = f"{package.name} is an editable install of {package.url or 'a folder'}: it changes with that folder"
        yield EnvironmentFinding("editable", ERROR, text, again, package.key)


def _installed_wrongly(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    by_key: dict[str, list[Installed]] = {}
    for package in facts.packages:
        by_key.setdefault(package.key, []).append(package)
    for key, several in by_key.items():
        if len(several) > 1:
            told = "; ".join(f"{one.version} in {one.site}" for one in several)
            way_out = repair(facts, "reinstall", f"{key}=={several[0].version}")
            text = f"{several[0].name} is there {len(several)} times: {told}; the first is imported"
            alike = len({(one.version, one.site) for one in several}) == 1
            yield EnvironmentFinding("twice", WARNING if alike else ERROR, text, way_out, key)
    for path in facts.half_removed:
        stump = re.sub(r"-\d.*", "", path.rsplit("/", 1)[-1])
        name = whole_name(stump, frozenset(by_key))
        text = f"{path} is what a cut-off upgrade of {name or 'a package'} left"
        whole = f"{repair(facts, 'reinstall', name)} && " if name else ""
        yield EnvironmentFinding("half_removed", WARNING, text, f"{whole}rm -r {path}", name)


def _leaks(facts: EnvironmentFacts, expected: Expectation | None) -> Iterator[EnvironmentFinding]:
    for shadow in facts.shadows:
        text = f"{shadow.path} is imported in place of {_hidden(shadow.module, shadow.hides)}"
        way_out = f"rename {shadow.path}, or take its folder out of PYTHONPATH"
        yield EnvironmentFinding("shadow", ERROR, text, way_out, shadow.module)
    for folder, modules in facts.path_folders:
        told = ", ".join(modules[:SHOWN]) or "no modules"
        text = f"PYTHONPATH brings {folder} before all packages ({told})"
        yield EnvironmentFinding(
            "python_path", WARNING, text, "unset PYTHONPATH, or set it in `variables:` of the payload"
        )
    if facts.user_site is not None:
        text = f"the packages of this login, {facts.user_site}, come before those of the environment"
        yield EnvironmentFinding("user_site", WARNING, text, 'PYTHONNOUSERSITE: "1"   in `variables:` of the payload')
    if facts.system_site:
        text = f"{facts.prefix}/pyvenv.cfg has include-system-site-packages = true: the system's packages are seen"
        yield EnvironmentFinding("system_site", WARNING, text, "set it to false there")
    for name in ("PYTHONHOME", "LD_PRELOAD"):
        if name in facts.variables:
            text = f"{name} is {facts.variables[name]}"
            yield EnvironmentFinding("variable", WARNING, text, f"unset {name}")
    if expected is None:
        for package in facts.used().values():
            if package.editable and package.key != OURS:
                text = (
                    f"{package.name} is an editable install of {package.url or 'a folder'}: it changes with that folder"
                )
                yield EnvironmentFinding("editable", WARNING, text, "", package.key)


def _hidden(module: str, hides: str) -> str:
    return f"the standard library's {module}" if hides == "standard library" else hides


def _changed_files(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    files = facts.files
    if files is None:
        return
    for kind, rows, words in (("changed", files.changed, "not as installed"), ("gone", files.missing, "gone")):
        groups: dict[str, list[str]] = {}
        for row in rows:
            groups.setdefault(row.package, []).append(f"{row.path} ({row.why})" if row.why else row.path)
        for name, paths in groups.items():
            package = facts.used().get(name) or next((one for one in facts.packages if one.name == name), None)
            version = f"=={package.version}" if package and package.version else ""
            of = f" of its {package.files} files" if package and package.files else " of its files"
            text = f"{name}: {len(paths)}{of} {'are' if len(paths) > 1 else 'is'} {words}"
            way_out = repair(facts, "reinstall", f"{name}{version}")
            yield EnvironmentFinding(kind, ERROR, text, way_out, package.key if package else name, tuple(paths[:SHOWN]))
    if facts.loose:
        text = (
            f"{len(facts.loose)} file{'s' if len(facts.loose) > 1 else ''} below site-packages that no package brought"
        )
        yield EnvironmentFinding("loose", WARNING, text, "see who put them there", details=facts.loose[:SHOWN])


def _platform(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    libc = re.match(r"glibc 2\.(\d+)", facts.libc or "")
    python = re.match(r"(\d+)\.(\d+)", facts.version)
    for package in facts.used().values():
        needed = [int(found[1]) for tag in package.tags if (found := re.search(r"manylinux_2_(\d+)_", tag))]
        if libc and needed and min(needed) > int(libc[1]):
            text = f"{package.name} {package.version} is built for glibc 2.{min(needed)}; here it is 2.{libc[1]}"
            way_out = (
                f"a build for an older glibc: pip download --platform manylinux_2_{libc[1]}_{facts.architecture} ..."
            )
            yield EnvironmentFinding("glibc", ERROR, text, way_out, package.key)
        pythons = {found[1] for tag in package.tags if (found := re.match(r"cp(\d+)-cp\d+t?-", tag))}
        if python and pythons and f"{python[1]}{python[2]}" not in pythons and not _stable(package):
            told = ", ".join(f"{tag[0]}.{tag[1:]}" for tag in sorted(pythons))
            text = f"{package.name} {package.version} is built for Python {told}; this is {facts.version}"
            way_out = repair(facts, "reinstall", f"{package.name}=={package.version}")
            yield EnvironmentFinding("another_python", ERROR, text, way_out, package.key)


def _stable(package: Installed) -> bool:
    return any("-abi3-" in tag or tag.startswith("py3-") or "-none-" in tag for tag in package.tags)


def _not_looked_at(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    files = facts.files
    if files is None:
        return
    if files.not_hashed:
        text = f"{files.not_hashed} of {files.files} files were not hashed: the time or the bytes were over"
        yield EnvironmentFinding("not_hashed", NOTE, text, "--deadline gives more time")
    if files.by_age:
        text = (
            f"{files.by_age} of {files.files} files were taken as they are: of the recorded size, and not written since"
        )
        yield EnvironmentFinding("by_age", NOTE, text, "without --quick each is hashed")
    without = [package.name for package in facts.used().values() if package.build is None and not package.editable]
    if without:
        text = f"without RECORD, so that their files are not known: {', '.join(without[:SHOWN])}"
        yield EnvironmentFinding("no_record", NOTE, text)
    for package in facts.used().values():
        if package.unread_rows:
            text = (
                f"{package.name}: {package.unread_rows} lines of its RECORD cannot be read: their files are not known"
            )
            yield EnvironmentFinding("no_record", NOTE, text, package=package.name)

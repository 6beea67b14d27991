"""What pip, uv and conda complain of: pip check's rows, warnings about site-packages, errors of an install.

Rule: pure. A complaint that is not known is kept as `error` with its own words; a notice is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from orchestrator.probes.pip_facts import NAME, VERSION, PipPackage, PipReading, Row, placed, trouble
from orchestrator.probes.pip_tables import half_removed

_PREFIX = r"(?:(?:ERROR|WARNING|error|warning): +)?"
_NEEDS = re.compile(
    rf"{_PREFIX}(?P<by>{NAME}) (?P<by_version>{VERSION}) requires (?P<wanted>.+?),"
    r" (?:which|but it) is not installed\.?"
)
_CONFLICT = re.compile(
    rf"{_PREFIX}(?P<by>{NAME}) (?P<by_version>{VERSION}) (?:requires|has requirement) (?P<wanted>.+?),"
    rf" but you(?:'ll)? have (?P<name>{NAME}) (?P<found>\S+?)(?: which is incompatible)?\.?"
)
_UV_NEEDS = re.compile(
    r"The package `(?P<by>[^`]+)` requires `(?P<wanted>[^`]+)`, but (?:`(?P<found>[^`]+)` is|it's not) installed\.?"
)
_UV_PYTHON = re.compile(r"The package `(?P<by>[^`]+)` requires Python (?P<wanted>\S+), but `(?P<found>[^`]+)` is .*")
_UV_TWICE = re.compile(r"The package `(?P<by>[^`]+)` has multiple installed distributions:?")
_UV_BROKEN = re.compile(r"The package `(?P<by>[^`]+)` is broken or incomplete.*")
_UV_PLATFORM = re.compile(r"The package `(?P<by>[^`]+)` was built for a different platform\.?")
_INVALID = re.compile(rf"{_PREFIX}Ignoring invalid distribution (?P<stump>[~-]\S*)(?: \((?P<folder>.+)\))?")
_DANGLING = re.compile(
    rf"{_PREFIX}Ignoring dangling temporary directory: `?(?P<folder>\S*/)(?P<stump>~[^/`\s]*?)"
    r"(?:-(?P<version>\d[^/`]*?))?(?:\.(?:dist-info|egg-info|data))?`?"
)
_NO_REQUIREMENT = re.compile(
    rf"{_PREFIX}Could not generate requirement for distribution (?P<stump>[~-]\S+) (?P<version>\S+)"
    r" \((?P<folder>[^)]+)\).*"
)
_METADATA = re.compile(
    rf"{_PREFIX}(?:Skipping (?P<a>\S+) due to invalid metadata entry.*|No metadata found in (?P<b>\S+)"
    r"|.*Error parsing (?:requirements|dependencies) (?:for|of) (?P<c>[^:\s]+):.*)"
)
_NOT_INSTALLED = re.compile(
    rf"{_PREFIX}(?:Skipping (?P<a>\S+) as it is not installed\.?|Package\(s\) not found: (?P<b>.+))"
)
_NO_VERSION = re.compile(
    r"(?:ERROR:? +)?Could not find a version that satisfies the requirement (?P<wanted>.+?)"
    r"(?: \(from (?P<by>(?!versions:).+?)\))?(?: \(from versions: (?P<versions>.*)\))?"
)
_NO_MATCH = re.compile(r"(?:ERROR:? +)?No matching distribution found for (?P<wanted>.+?)(?: \(from .+\))?")
_RESOLUTION = re.compile(
    r"(?:ERROR: )?Cannot install (?P<wanted>.+) because these package versions have conflicting dependencies\."
)
_UNSUPPORTED = re.compile(r"ERROR: (?P<wheel>\S+\.whl) is not a supported wheel on this platform\.")
_NOT_HERE = re.compile(rf"{_PREFIX}(?P<by>{NAME}) (?P<by_version>{VERSION}) is not supported on this platform\.?")
_PYTHON = re.compile(
    r"ERROR: Package '(?P<by>[^']+)' requires a different Python: (?P<found>\S+) not in '(?P<wanted>[^']+)'"
)
_BUILD = re.compile(
    r"(?:ERROR: +|error: +|[×x] )?(?:Failed building wheel for (?P<a>\S+)|Could not build wheels for (?P<b>[^,]+).*"
    r"|Failed to build installable wheels for some pyproject\.toml based projects \(?(?P<c>[^)]+)\)?"
    r"|Failed (?:to|while) build(?:ing)? (?:\w+ )?`?(?P<d>[^`\s]+)`?)"
)
_BUILD_NEEDS = re.compile(r"[│╰╎> ]*ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_NO_METADATA = re.compile(r"error: metadata-generation-failed")
_NO_NETWORK = re.compile(
    r".*(?:Retrying \(Retry\(|Temporary failure in name resolution|Name or service not known|ConnectTimeoutError"
    r"|Failed to establish a new connection|Network is unreachable|error sending request for url|dns error"
    r"|There was a problem confirming the ssl certificate|ReadTimeoutError|operation timed out).*"
)
_KEPT = re.compile(
    r"(?:ERROR: |error: |× )?(?:Cannot|Can't) uninstall '?(?P<name>[\w.-]+?)'?(?: (?P<found>\d\S*?))?[.,]?(?: .*)?"
    r"|.*no RECORD file was found for (?P<other>[\w.-]+?)\.?"
)
_PERMISSION = re.compile(r".*(?:\[Errno 13\] )?Permission denied.*|.*\(os error 13\).*")
_WRONG_HASH = re.compile(r".*Hash mismatch for `(?P<name>[\w.-]+?)==.*")
_DISK = re.compile(r".*(?:\[Errno 28\] )?No space left on device.*|.*\(os error 28\).*")
_NOTICE = re.compile(
    r"\[notice\].*|DEPRECATION:.*|WARNING: (?:You are using pip|Running pip as|The director|The script|"
    r"Cache entry|Value for|Additional context|There was an error checking).*"
    r"|ERROR: pip's dependency resolver does not currently take into account.*|error: subprocess-exited-with-error"
    r"|ERROR: ResolutionImpossible.*|ERROR: Ignored the following .*| *(?:Expected sha\d{1,3}| {4}Got) +[\da-f]{4,128}",
    re.IGNORECASE,
)
_CONDA_UNSOLVED = re.compile(
    r"\s*(?:(?:error +libmamba )?(?:The following packages? (?:are incompatible|could not be installed)"
    r"|Could not solve for environment specs)"
    r"|LibMambaUnsatisfiableError: .*|UnsatisfiableError: .*|Pins seem to be involved in the conflict.*)"
)
_NO_PIP = re.compile(r"(?P<python>\S*python[\d.]*): No module named pip")
_FINE = re.compile(r"No broken requirements found\.?|All installed packages are compatible\.?")

_SIMPLE: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
    ("twice", _UV_TWICE, "{by} is installed twice", "remove one of the two: which is imported is chance"),
    ("broken_metadata", _UV_BROKEN, "{by} is installed incompletely", "install {by} again"),
    ("wrong_platform", _UV_PLATFORM, "{by} was built for another platform", "install {by} again on this machine"),
    ("wrong_platform", _NOT_HERE, "{by} {by_version} is not for this platform", "install {by} again on this machine"),
    ("wrong_python", _UV_PYTHON, "{by} needs Python {wanted}; here it is {found}", "take another Python, or version"),
    ("wrong_python", _PYTHON, "{by} needs Python {wanted}; here it is {found}", "take another Python, or version"),
)


def read_trouble(row: Row, reading: PipReading) -> bool:
    """True: the row was a complaint or a notice, and names no package as installed unless it says so."""
    if _NOTICE.fullmatch(row.text):
        return True
    if _FINE.fullmatch(row.text):
        reading.said_fine = row.span
        return True
    readers: tuple[Callable[[Row, PipReading], bool], ...] = (
        *(_requirements, _half, _no_version, _not_possible_here, _not_fitting, _build_failed),
        *(_metadata, _simple, _unknown),
    )
    return any(read(row, reading) for read in readers)


def _requirements(row: Row, reading: PipReading) -> bool:
    if match := _NEEDS.fullmatch(row.text):
        name = requirement_name(match["wanted"])
        text = f"{match['by']} {match['by_version']} needs {match['wanted']}, which is not installed"
        _told(reading, row, match["by"], match["by_version"])
        _trouble(reading, row, "missing", text, name, match["by"], match["wanted"])
        return True
    if match := _CONFLICT.fullmatch(row.text):
        there = f"but {match['name']} {match['found']} is installed"
        text = f"{match['by']} {match['by_version']} needs {match['wanted']}, {there}"
        _told(reading, row, match["by"], match["by_version"])
        _told(reading, row, match["name"], match["found"])
        _trouble(reading, row, "conflict", text, match["name"], match["by"], match["wanted"], match["found"])
        return True
    if match := _UV_NEEDS.fullmatch(row.text):
        name, found = requirement_name(match["wanted"]), match["found"]
        there = f"but {found} is installed" if found else "which is not installed"
        if found and name:
            _told(reading, row, name, found)
        text = f"{match['by']} needs {match['wanted']}, {there}"
        _trouble(reading, row, "conflict" if found else "missing", text, name, match["by"], match["wanted"], found)
        return True
    return False


def _half(row: Row, reading: PipReading) -> bool:
    match = _INVALID.fullmatch(row.text) or _DANGLING.fullmatch(row.text) or _NO_REQUIREMENT.fullmatch(row.text)
    if not match:
        return False
    told = half_removed(match["stump"], row, folder=match["folder"], version=match.groupdict().get("version"))
    # pip repeats the warning for each step.
    same = told.meaning.rpartition(" ")[2]
    if same not in {other.meaning.rpartition(" ")[2] for other in reading.findings if other.kind == told.kind}:
        reading.findings.append(told)
    return True


def _no_version(row: Row, reading: PipReading) -> bool:
    if match := _NO_VERSION.fullmatch(row.text):
        wanted = match["wanted"].strip()
        offered = [version.strip() for version in (match["versions"] or "").split(",")]
        offered = [version for version in offered if version and version != "none"]
        text, way_out = _why_not_found(wanted, offered)
        _trouble(reading, row, "not_found", text, requirement_name(wanted), match["by"], wanted, way_out=way_out)
        return True
    if match := _NO_MATCH.fullmatch(row.text):
        wanted = match["wanted"].strip()
        if not _named(reading, "not_found", "wanted", wanted):
            text, way_out = _why_not_found(wanted, [])
            _trouble(reading, row, "not_found", text, requirement_name(wanted), None, wanted, way_out=way_out)
        return True
    return False


def _why_not_found(wanted: str, offered: list[str]) -> tuple[str, str]:
    local = re.search(r"===?\s*([^\s,;+]+)\+([A-Za-z0-9.]+)", wanted)
    if local and offered and not any("+" in version for version in offered):
        plain, build = local[1], local[2]
        there = f"{plain} is there, but" if plain in offered else "there are"
        return (
            f"{wanted} was not found: this index has only plain versions; {there} no +{build} build",
            f"name the index that holds the {build} builds with --index-url, or ask for {wanted.split('+')[0]}",
        )
    if not offered:
        return f"{wanted} was not found on the index", "see the name, the Python version, and --index-url"
    return (
        f"{wanted} was not found: the index has {', '.join(offered[-5:])}",
        "ask for one of these, or see --index-url",
    )


def _not_possible_here(row: Row, reading: PipReading) -> bool:
    """The machine, or the environment, does not let it be installed."""
    if _DISK.fullmatch(row.text):
        _trouble(reading, row, "disk_full", "the disk is full", None, way_out="free some space, then install again")
        return True
    if _NO_NETWORK.fullmatch(row.text):
        if not any(other.kind == "no_network" for other in reading.findings):
            way_out = "is the index reachable from here? --index-url, --proxy; or bring the wheels"
            _trouble(reading, row, "no_network", "the index cannot be reached", None, way_out=way_out)
        return True
    if match := _KEPT.fullmatch(row.text):
        name = match["name"] or match["other"]
        if not _named(reading, "broken_metadata", "package", name):
            text = f"{name} cannot be uninstalled: nobody recorded which files are its own"
            way_out = f"remove its files by hand, or install over it: --ignore-installed {name}"
            _trouble(reading, row, "broken_metadata", text, name, found=match["found"], way_out=way_out)
        return True
    if _PERMISSION.fullmatch(row.text):
        way_out = "install into a virtual environment of your own, or as the user who owns this one"
        _trouble(reading, row, "no_permission", "the environment may not be written", None, way_out=way_out)
        return True
    if "externally-managed-environment" in row.text or "environment is externally managed" in row.text.lower():
        text = "this Python belongs to the operating system, and pip may not change it"
        if not any(other.kind == "managed" for other in reading.findings):
            _trouble(reading, row, "managed", text, None, way_out="install into a virtual environment")
        return True
    return False


def _not_fitting(row: Row, reading: PipReading) -> bool:
    """What is asked for does not fit together, or is not what was meant."""
    if match := _RESOLUTION.fullmatch(row.text):
        text = f"no versions fit together: {match['wanted']}"
        _trouble(reading, row, "no_solution", text, None, wanted=match["wanted"])
        return True
    if match := re.fullmatch(r"[│╰├─▶> ]*(?:cause: )?(Because .*)", row.text):
        _trouble(reading, row, "no_solution", match[1], None)
        return True
    if _CONDA_UNSOLVED.fullmatch(row.text):
        if not any(other.kind == "no_solution" for other in reading.findings):
            _trouble(reading, row, "no_solution", "no versions fit together: the rows below say which", None)
        return True
    if re.fullmatch(r"(?:[×x]|error:) No solution found when resolving dependencies.*", row.text):
        return True  # the row below says why
    if match := _UNSUPPORTED.fullmatch(row.text):
        name = match["wheel"].split("-")[0]
        text = f"{match['wheel']} is for another Python or platform"
        _trouble(reading, row, "wrong_platform", text, name, way_out="take the wheel of this Python and platform")
        return True
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in row.text:
        _trouble(reading, row, "hash_mismatch", "what was downloaded is not what the lock names", None)
        return True
    if match := _WRONG_HASH.fullmatch(row.text):
        _trouble(reading, row, "hash_mismatch", f"{match['name']} is not what the lock names", match["name"])
        return True
    return False


def _build_failed(row: Row, reading: PipReading) -> bool:
    if match := _BUILD_NEEDS.fullmatch(row.text):
        name = match["name"]
        if not _named(reading, "build_failed", "wanted", name):
            text = f"a package's build needs {name}, which the build's own environment does not have"
            way_out = f"install {name} first, then that package with --no-build-isolation"
            _trouble(reading, row, "build_failed", text, None, wanted=name, way_out=way_out)
        return True
    if _NO_METADATA.fullmatch(row.text):
        if not any(other.kind == "build_failed" for other in reading.findings):
            _trouble(reading, row, "build_failed", "a package's build could not tell what it is", None)
        return True
    if match := _BUILD.fullmatch(row.text):
        name = next(group for group in match.groups() if group).strip()
        if not _named(reading, "build_failed", "package", name):
            _trouble(reading, row, "build_failed", f"{name} could not be built", name)
        return True
    return False


def _metadata(row: Row, reading: PipReading) -> bool:
    if match := _METADATA.fullmatch(row.text):
        where = match["a"] or match["b"] or match["c"]
        found = re.search(rf"(?:^|/)({NAME}?)(?:-\d[^/]*)?(?:\.(?:dist|egg)-info)?/?$", where)
        text = f"the metadata at {where} cannot be read"
        _trouble(reading, row, "broken_metadata", text, found[1] if found else None, way_out="install it again")
        return True
    if match := _NOT_INSTALLED.fullmatch(row.text):
        for name in re.split(r",\s*", match["a"] or match["b"]):
            _trouble(reading, row, "missing", f"{name} is not installed", name)
        return True
    return False


def _simple(row: Row, reading: PipReading) -> bool:
    for kind, pattern, text, way_out in _SIMPLE:
        if match := pattern.fullmatch(row.text):
            said = {name: value or "" for name, value in match.groupdict().items()}
            wanted, found = said.get("wanted"), said.get("found")
            _trouble(
                reading, row, kind, text.format(**said), said["by"], None, wanted, found, way_out=way_out.format(**said)
            )
            return True
    return False


def _unknown(row: Row, reading: PipReading) -> bool:
    if match := _NO_PIP.fullmatch(row.text):
        way_out = f"ask another way: uv pip list --python {match['python']}; or put it there: python -m ensurepip"
        _trouble(reading, row, "no_pip", f"{match['python']} has no pip", None, way_out=way_out)
        return True
    if re.match(r"(?:ERROR|error): *\S", row.text):
        _trouble(reading, row, "error", row.text.partition(":")[2].strip(), None)
        return True
    return bool(re.match(r"(?:WARNING|warning|INFO|DEBUG|TRACE)\b:? +\S", row.text))


def requirement_name(requirement: str) -> str | None:
    match = re.match(NAME, requirement.strip())
    # A greedy name eats no operator, but `torch-` of `torch->=1` is none either.
    return match[0] if match else None


def _told(reading: PipReading, row: Row, name: str, version: str) -> None:
    """The row says that this version is installed."""
    if not any(package.name == name and package.version == version for package in reading.packages):
        reading.packages.append(placed(PipPackage(name, version), row))


def _trouble(
    reading: PipReading,
    row: Row,
    kind: str,
    meaning: str,
    package: str | None,
    needed_by: str | None = None,
    wanted: str | None = None,
    found: str | None = None,
    way_out: str = "",
) -> None:
    if row.text.startswith("Caused by:") and reading.findings and reading.findings[-1].kind == "error":
        reading.findings.pop()  # uv's headline, of which this is the reason
    reading.findings.append(trouble(row, kind, meaning, package, needed_by, wanted, found, way_out))


def _named(reading: PipReading, kind: str, name: str, value: str) -> bool:
    """Whether this was told already: pip says many things twice."""
    return any(
        other.kind == kind and name in other.named and other.named[name].value == value for other in reading.findings
    )

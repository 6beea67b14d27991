"""Torch and its libraries in one environment: what torch requires, what is lacking, what belongs to another CUDA.

Rule: pure. What torch's METADATA requires is what belongs; nothing is called foreign because of its name alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from orchestrator.probes.environment import EnvironmentFacts, Installed, Library
from orchestrator.probes.environment_finding import ERROR, NOTE, WARNING, EnvironmentFinding, repair
from orchestrator.probes.libraries import (
    cuda_of_package,
    is_nvidia_library,
    package_base,
    provider,
    toolkit_packages,
)
from orchestrator.probes.pip_facts import normalise

MINIMUM_DRIVER = {13: 580, 12: 525, 11: 450}
"""CUDA major -> oldest driver branch for it, by minor version compatibility:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (table 1)."""
_CORE = re.compile(
    r"_C\.|libtorch(?:_cpu|_cuda|_cuda_linalg|_python|_global_deps)?\.so|libc10(?:_cuda)?\.so|libshm\.so"
)
"""Without these torch is not imported; some of the others are loaded only when somebody asks for them."""


def cuda_findings(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    torch = facts.used().get("torch")
    if torch is None:
        return
    wants = torch_wants(facts)
    lacking = list(_missing_libraries(facts, wants))
    yield from lacking
    told = {finding.package for finding in lacking}
    yield from (finding for finding in _unmet(facts, wants) if finding.package not in told)
    yield from _foreign(facts, wants)
    yield from _driver(facts)
    for soname, path in facts.copies:
        text = f"LD_LIBRARY_PATH has another {soname}, {path}: it may be loaded in place of torch's"
        way_out = "take that folder out of LD_LIBRARY_PATH (`variables:` of the payload, or the container's own)"
        yield EnvironmentFinding("library_path", WARNING, text, way_out)


def cuda_major(facts: EnvironmentFacts) -> int | None:
    """Of the torch that is installed. None: a build for the CPU, or unknown."""
    local = re.search(r"\+cu(\d{2})\d", facts.torch_version or "")
    found = re.match(r"\d+", facts.torch_cuda or "")
    return int(local[1]) if local else int(found[0]) if found else None


def torch_wants(facts: EnvironmentFacts) -> dict[str, str]:
    """Package -> the requirement, as pip takes it: `nvidia-cudnn-cu12==9.10.2.21`. With what cuda-toolkit brings."""
    used = facts.used()
    wants: dict[str, str] = {}
    for requirement in _applying(used["torch"], facts, ("",)):
        key = normalise(requirement.name)
        if key != "cuda-toolkit":
            wants[key] = f"{requirement.name}{requirement.specifier}"
            continue
        wants[key] = f"{requirement.name}[{','.join(sorted(requirement.extras))}]{requirement.specifier}"
        toolkit = used.get(key)
        version = (toolkit.version if toolkit else None) or str(requirement.specifier).lstrip("=~<>! ")
        for name in toolkit_packages(sorted(requirement.extras), version):
            wants.setdefault(name, name)
        for inner in _applying(toolkit, facts, tuple(requirement.extras)) if toolkit else ():
            if normalise(inner.name) != "cuda-toolkit":
                wants[normalise(inner.name)] = f"{inner.name}{inner.specifier}"
    return wants


def _applying(package: Installed, facts: EnvironmentFacts, extras: tuple[str, ...]) -> Iterator[Requirement]:
    environment = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": facts.architecture or "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_full_version": facts.version,
        "python_version": ".".join(facts.version.split(".")[:2]),
    }
    for line in package.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
            yield requirement


def _unmet(facts: EnvironmentFacts, wants: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    used = facts.used()
    torch = f"torch {facts.torch_version or used['torch'].version}"
    for key, wanted in wants.items():
        there = used.get(key)
        if there is None:
            text = f"{torch} needs {wanted}, which is not installed"
            yield EnvironmentFinding("requirement", ERROR, text, repair(facts, "install", wanted), key)
        elif there.version is not None and not _fits(wanted, there.version):
            text = f"{torch} needs {wanted}; {there.version} is installed"
            yield EnvironmentFinding("requirement", ERROR, text, repair(facts, "install", wanted), key)


def _missing_libraries(facts: EnvironmentFacts, wants: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    for library in facts.libraries or ():
        if library.path is None:
            yield _missing(library, facts, wants)
    for path, why in facts.broken_libraries:
        text = f"{path} cannot be read as a library: {why}"
        yield EnvironmentFinding("library_broken", ERROR, text, repair(facts, "reinstall", "torch"), "torch")


def _missing(library: Library, facts: EnvironmentFacts, wants: Mapping[str, str]) -> EnvironmentFinding:
    """The package is the one that this torch requires, in the version that it requires."""
    by = ", ".join(library.by[:2])
    known = provider(library.soname, cuda_major(facts))
    core = any(_CORE.match(name) or not name.startswith(("libtorch", "libc10")) for name in library.by)
    severity = ERROR if core else WARNING
    if known is None:
        return EnvironmentFinding(
            "library", severity, f"{library.soname}, which {by} loads, is provided by nobody here"
        )
    if known.kind == "driver":
        text = f"{library.soname}, which {by} loads, comes with the NVIDIA driver, which is not visible here"
        return EnvironmentFinding("library", NOTE if facts.driver is None else severity, text)
    if known.kind == "system":
        text = f"{library.soname}, which {by} loads, is missing: the system's {known.package} provides it"
        return EnvironmentFinding("library", severity, text, f"apt-get install {known.package}", known.package)
    base = package_base(known.package)
    key = next((name for name in wants if package_base(name) == base), known.package)
    wanted = wants.get(key, key)
    there = facts.used().get(normalise(key))
    state = f"which is installed ({there.version}) without it" if there else "which is not installed"
    text = f"{library.soname}, which {by} loads, is missing: {wanted} provides it, {state}"
    if there is not None and there.version and "==" not in wanted:
        wanted = f"{wanted}=={there.version}"
    return EnvironmentFinding(
        "library", severity, text, repair(facts, "reinstall" if there else "install", wanted), key
    )


def _foreign(facts: EnvironmentFacts, wants: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    """CUDA libraries of another major than torch's: told apart from what torch needs, with who else needs them."""
    ours, used = cuda_major(facts), facts.used()
    for key, package in used.items():
        major = _major_of(package)
        if ours is None or major is None or major == ours or key in wants:
            continue
        covered = [
            other for shared in facts.shared or () if package.name in shared.packages
            for other in shared.packages if normalise(other) in wants
        ]  # fmt: skip
        users = [other.name for other in used.values() if other.key != "torch" and _requires(other, key, facts)]
        for_whom = f"; {', '.join(users[:3])} requires it" if users else "; nothing requires it"
        torch = f"torch {facts.torch_version} for CUDA {ours}"
        text = f"{package.name} {package.version} is for CUDA {major}, {torch}{for_whom}"
        if covered:
            again = [wants.get(normalise(name), name) for name in covered]
            text += (
                f". Its files lie over those of {', '.join(covered)}, which torch needs: removing it takes them away"
            )
            way_out = f"{repair(facts, 'uninstall', package.name)} && {repair(facts, 'reinstall', ' '.join(again))}"
            yield EnvironmentFinding("foreign_cuda", ERROR, text, way_out, key)
        else:
            yield EnvironmentFinding("foreign_cuda", WARNING, text, repair(facts, "uninstall", package.name), key)


def _major_of(package: Installed) -> int | None:
    if not is_nvidia_library(package.key):
        return None
    named = cuda_of_package(package.key)
    if named is not None:
        return named
    # From CUDA 13 on the toolkit's packages have no ending; their versions begin with the major where the library's
    # own does not (nvidia-cufft 12.0 is of CUDA 13).
    return 13


def _requires(package: Installed, key: str, facts: EnvironmentFacts) -> bool:
    return any(normalise(requirement.name) == key for requirement in _applying(package, facts, ("",)))


def _driver(facts: EnvironmentFacts) -> Iterator[EnvironmentFinding]:
    major = cuda_major(facts)
    wanted = MINIMUM_DRIVER.get(major or 0)
    branch = re.match(r"\d+", facts.driver or "")
    if wanted is not None and branch is not None and int(branch[0]) < wanted:
        text = (
            f"the NVIDIA driver is {facts.driver}; torch {facts.torch_version} for CUDA {major} needs {wanted} or newer"
        )
        yield EnvironmentFinding(
            "driver", ERROR, text, f"a newer driver on the host, or a torch for CUDA {(major or 1) - 1}"
        )


def _fits(wanted: str, version: str) -> bool:
    try:
        return Requirement(wanted).specifier.contains(Version(version), prereleases=True)
    except (InvalidRequirement, InvalidVersion):
        return True  # a version of no known form says nothing

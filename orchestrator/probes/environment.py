"""A Python environment as the agent's op env_look tells of it, and what it should be.

Rule: pure; unknown is None. What the mode of the look left out is None too, never "nothing found".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.pip_facts import normalise
from orchestrator.probes.values import as_bool, as_int, as_mapping, as_str, as_strs

MODULES_TOLD = 50
"""Of a folder of PYTHONPATH no more are told."""


@dataclass(frozen=True)
class Installed:
    name: str
    version: str | None
    site: str
    """The site-packages folder that it is in."""
    installer: str | None
    editable: bool
    url: str | None
    commit: str | None
    tags: tuple[str, ...]
    """Of its wheel: `cp312-cp312-manylinux_2_28_x86_64`."""
    build: str | None
    requires: tuple[str, ...]
    """Of torch all, of others those that concern torch and CUDA."""
    files: int | None
    unread_rows: int
    """Lines of its RECORD that are none."""
    info: str
    """Its .dist-info folder."""

    @property
    def key(self) -> str:
        return normalise(self.name)


@dataclass(frozen=True)
class FileFact:
    path: str
    package: str
    why: str


@dataclass(frozen=True)
class Files:
    changed: tuple[FileFact, ...]
    missing: tuple[FileFact, ...]
    changed_files: int
    missing_files: int
    files: int
    hashed: int
    bytes_hashed: int
    not_hashed: int
    by_age: int


@dataclass(frozen=True)
class Library:
    soname: str
    by: tuple[str, ...]
    """Some of the files that ask for it."""
    path: str | None
    """None: the linker would not find it."""
    packages: tuple[str, ...]


@dataclass(frozen=True)
class SharedFiles:
    packages: tuple[str, ...]
    files: int
    example: str


@dataclass(frozen=True)
class Shadow:
    module: str
    path: str
    hides: str


@dataclass(frozen=True)
class EnvironmentFacts:
    python: str
    version: str
    prefix: str
    system_site: bool
    user_site: str | None
    sites: tuple[str, ...]
    packages: tuple[Installed, ...]
    """In the order in which they are imported: of two of one name the first is the one that is used."""
    half_removed: tuple[str, ...]
    """Absolute paths."""
    path_lines: tuple[tuple[str, str], ...]
    """(.pth file, a line of it)."""
    variables: Mapping[str, str]
    path_folders: tuple[tuple[str, tuple[str, ...]], ...]
    """(folder of PYTHONPATH, modules in it); those that are site folders anyway are left out."""
    shadows: tuple[Shadow, ...]
    torch_version: str | None
    torch_cuda: str | None
    driver: str | None
    libc: str | None
    architecture: str | None
    libraries: tuple[Library, ...] | None
    broken_libraries: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...]
    """(soname, path on LD_LIBRARY_PATH) of what a package brings, too."""
    shared: tuple[SharedFiles, ...] | None
    files: Files | None
    loose: tuple[str, ...] | None
    took_s: float | None

    def used(self) -> dict[str, Installed]:
        """Name as compared -> the one that is imported."""
        found: dict[str, Installed] = {}
        for package in self.packages:
            found.setdefault(package.key, package)
        return found

    def holds_torch(self) -> bool | None:
        """None: what .pth files and PYTHONPATH name may bring it, and was not looked through."""
        if "torch" in self.used() or self.torch_version is not None:
            return True
        if any("torch" in modules for _, modules in self.path_folders):
            return True
        elsewhere = any(not line.startswith(("import ", "import\t", "#")) for _, line in self.path_lines)
        return None if elsewhere or any(len(modules) >= MODULES_TOLD for _, modules in self.path_folders) else False


@dataclass(frozen=True)
class Wanted:
    version: str
    build: str | None = None
    editable: bool = False


@dataclass(frozen=True)
class Expectation:
    """What an environment should hold: no more and no less."""

    kind: str
    """lock or baseline."""
    label: str
    packages: Mapping[str, Wanted]
    """By the name as compared."""
    path_lines: tuple[tuple[str, str], ...] | None = None
    """None: a lock says nothing of .pth files."""


def parse_look(answer: object) -> EnvironmentFacts:
    raw = as_mapping(answer)
    python, machine, torch = (as_mapping(raw.get(name)) for name in ("python", "machine", "torch"))
    sites = [as_mapping(site) for site in _list(raw.get("sites"))]
    libraries = as_mapping(raw.get("libraries"))
    took_s = raw.get("took_s")
    return EnvironmentFacts(
        python=as_str(python.get("path")) or "",
        version=as_str(python.get("version")) or "",
        prefix=as_str(python.get("prefix")) or "",
        system_site=as_bool(python.get("system_site")) is True,
        user_site=as_str(python.get("user_site")),
        sites=as_strs(python.get("site_folders")),
        packages=tuple(
            _installed(as_mapping(package), as_str(site.get("folder")) or "")
            for site in sites
            for package in _list(site.get("packages"))
        ),
        half_removed=tuple(
            f"{site.get('folder')}/{name}" for site in sites for name in as_strs(site.get("half_removed"))
        ),
        path_lines=tuple(
            (as_str(as_mapping(file).get("file")) or "", line)
            for site in sites
            for file in _list(site.get("pth"))
            for line in as_strs(as_mapping(file).get("lines"))
        ),
        variables={name: value for name, value in as_mapping(raw.get("variables")).items() if isinstance(value, str)},
        path_folders=tuple(
            (as_str(folder.get("folder")) or "", as_strs(folder.get("modules")))
            for folder in map(as_mapping, _list(raw.get("path_folders")))
            if not folder.get("is_site")
        ),
        shadows=tuple(
            Shadow(as_str(one.get("module")) or "", as_str(one.get("path")) or "", as_str(one.get("hides")) or "")
            for one in map(as_mapping, _list(raw.get("shadows")))
        ),
        torch_version=as_str(torch.get("version")),
        torch_cuda=as_str(torch.get("cuda")),
        driver=as_str(machine.get("driver")),
        libc=as_str(machine.get("libc")),
        architecture=as_str(machine.get("architecture")),
        libraries=_libraries(libraries) if raw.get("libraries") is not None else None,
        broken_libraries=_pairs(libraries.get("broken"), "path", "why"),
        copies=_pairs(libraries.get("shadowing"), "soname", "path"),
        shared=_shared(raw.get("shared")),
        files=_files(as_mapping(raw.get("files"))) if raw.get("files") is not None else None,
        loose=as_strs(raw.get("loose")) if raw.get("loose") is not None else None,
        took_s=float(took_s) if isinstance(took_s, int | float) else None,
    )


def expectation_of_lock(label: str, requirements: object) -> Expectation:
    """requirements: {name: version}, as complete.json keeps them."""
    packages = {
        normalise(name): Wanted(version)
        for name, version in as_mapping(requirements).items()
        if isinstance(version, str)
    }
    return Expectation("lock", label, packages)


def baseline_record(facts: EnvironmentFacts) -> dict[str, object]:
    """What `orch env baseline` keeps of an environment that orch did not make."""
    return {
        "python": facts.python,
        "python_version": facts.version,
        "torch": facts.torch_version,
        "packages": {
            key: {"version": package.version, "build": package.build, "editable": package.editable}
            for key, package in sorted(facts.used().items())
        },
        "path_lines": [list(pair) for pair in facts.path_lines],
    }


def expectation_of_baseline(label: str, record: object) -> Expectation | None:
    """None: it is none, or of no use."""
    raw = as_mapping(record)
    packages = {}
    for name, value in as_mapping(raw.get("packages")).items():
        about = as_mapping(value)
        version = as_str(about.get("version"))
        packages[name] = Wanted(version or "", as_str(about.get("build")), as_bool(about.get("editable")) is True)
    if not packages:
        return None
    lines = tuple((pair[0], pair[1]) for item in _list(raw.get("path_lines")) if len(pair := as_strs(item)) == 2)
    return Expectation("baseline", label, packages, lines)


def _installed(raw: Mapping[str, object], site: str) -> Installed:
    return Installed(
        name=as_str(raw.get("name")) or "",
        version=as_str(raw.get("version")),
        site=site,
        installer=as_str(raw.get("installer")),
        editable=as_bool(raw.get("editable")) is True,
        url=as_str(raw.get("url")),
        commit=as_str(raw.get("commit")),
        tags=as_strs(raw.get("tags")),
        build=as_str(raw.get("build")),
        requires=as_strs(raw.get("requires")),
        files=as_int(raw.get("files")),
        unread_rows=as_int(raw.get("unread_rows")) or 0,
        info=as_str(raw.get("info")) or "",
    )


def _libraries(raw: Mapping[str, object]) -> tuple[Library, ...]:
    found = []
    for soname, value in as_mapping(raw.get("needed")).items():
        about = as_mapping(value)
        packages = as_strs(about.get("packages"))
        found.append(Library(soname, as_strs(about.get("by")), as_str(about.get("path")), packages))
    return tuple(found)


def _shared(value: object) -> tuple[SharedFiles, ...] | None:
    if value is None:
        return None
    return tuple(
        SharedFiles(as_strs(one.get("packages")), as_int(one.get("files")) or 0, as_str(one.get("example")) or "")
        for one in map(as_mapping, _list(value))
    )


def _files(raw: Mapping[str, object]) -> Files:
    def facts(name: str) -> tuple[FileFact, ...]:
        return tuple(
            FileFact(as_str(one.get("path")) or "", as_str(one.get("package")) or "", as_str(one.get("why")) or "")
            for one in map(as_mapping, _list(raw.get(name)))
        )

    def count(name: str) -> int:
        return as_int(raw.get(name)) or 0

    return Files(
        facts("changed"),
        facts("missing"),
        count("changed_files"),
        count("missing_files"),
        count("files"),
        count("hashed"),
        count("bytes_hashed"),
        count("not_hashed"),
        count("by_age"),
    )


def _pairs(value: object, first: str, second: str) -> tuple[tuple[str, str], ...]:
    rows = map(as_mapping, _list(value))
    return tuple((as_str(row.get(first)) or "", as_str(row.get(second)) or "") for row in rows)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

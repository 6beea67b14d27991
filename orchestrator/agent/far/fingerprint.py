"""fingerprint.json: what a run starts from, as files and the kernel tell it. Written before the training starts.

    {"schema", "run_id", "taken_at", "took_s", "identity": {...}, "observed": {...}, "unknown": {section: why}}

`identity` is what is compared: of a target that nobody changed it is the same, byte for byte, each time. `observed`
changes by itself.

Rule: it never fails a launch and never holds one up: each section is collected by itself, within one deadline for
all, and is null when it cannot be known. Nothing is imported or executed of what it describes. Values of
environment variables that may be secrets are not in it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from . import cache, cgroup, content, kept_files, packages, records, release_facts, start_record
from .driver import driver_text, parse_driver
from .gpu_identity import gpu_facts
from .identity import boot_id
from .observe import release
from .package_edits import package_edits
from .preflight import python_facts
from .records import Record, contract
from .runs import brief_of
from .sources import agent_hash
from .variables import settled, variable_facts

SCHEMA = "orch.fingerprint/2"
DEADLINE_S = 5.0
NOW_DEADLINE_S = 40.0
"""When nobody waits for a start."""
CACHE_S = 1.0
CACHE_FILES = 100_000
"""The caches are counted for so long, and so far."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
OF_THE_SPEC = ("payload", "settings", "targets", "drafters", "data", "model", "resume_from")
"""Of run.json what makes a run another one; not who asked, when, and under which name."""

Sections = Dict[str, Callable[[], Any]]


class TooLateError(Exception):
    pass


class NotAskedError(Exception):
    pass


def write(folder: str, base: str, record: Record, observed: Record) -> None:
    """folder: the run's; record: its run.json; observed: see `collect`. Never raises."""
    put(folder, record, collect(base, record, observed, DEADLINE_S))


def put(folder: str, record: Record, told: Record) -> None:
    """told: of `collect`. Never raises."""
    try:
        kept_files.keep(folder, files_to_keep(str(record.get("release") or ""), told["identity"]))
        records.write_record(folder, contract.FINGERPRINT, dict(told, run_id=record.get("run_id")))
        records.write_record(folder, records.BRIEF, brief_of(told))
    except (OSError, ValueError, TypeError, RuntimeError):
        return


def fingerprint_now(params: Record, body: bytes, channel: Any) -> Record:
    """What a run would start from now. params: base, spec, argv, environment, python as in start_run; observed
    ({orch_version, container, expected}); gpus (whether nvidia-smi is asked); python_problem (why there is no
    environment). The record, without a run's id."""
    base = records.base_folder(params)
    python = params.get("python")
    environment = start_record.training_environment(dict(params.get("environment") or {}), "", python)
    record = dict(params.get("spec") or {}, release=release(base), environment=environment, python=python)
    record["argv"] = start_record.resolve_python(list(params.get("argv") or [""]), python, environment["PATH"])
    observed = dict(params.get("observed") or {}, python_problem=params.get("python_problem"))
    if not observed["python_problem"]:
        observed["python"] = python_facts(python)
    if params.get("gpus"):
        try:
            observed["gpus"] = gpu_facts()
        except ValueError as error:
            observed["gpus_error"] = str(error)
    return collect(base, record, observed, NOW_DEADLINE_S)


def collect(base: str, record: Record, observed: Record, deadline_s: float) -> Record:
    """record: run.json; observed: {orch_version, python (as preflight tells), gpus (as gpu_identity tells), gpus_error,
    container ({config}), expected ({path: hash})}; what is missing in it is unknown."""
    began, at = time.monotonic(), time.time()

    def check() -> None:
        if time.monotonic() > began + deadline_s:
            raise TooLateError("not done within %g s" % deadline_s)

    parts: Dict[str, Record] = {"identity": {}, "observed": {}}
    identity = _identity(base, record, observed, check)
    work = [("identity", name, section) for name, section in identity.items()]
    work += [("observed", name, section) for name, section in _observations(base, record, observed, check).items()]
    for part, name, _ in work:
        parts[part][name] = None
    unknown: Dict[str, str] = {name: "not done within %g s" % deadline_s for _, name, _ in work}

    def run() -> None:
        for part, name, section in work:
            try:
                parts[part][name] = section()
                unknown.pop(name)
            except NotAskedError as error:
                unknown[name] = str(error)[:200]
            except Exception as error:  # whatever it is, the training matters more
                unknown[name] = ("%s: %s" % (type(error).__name__, error))[:200]

    collecting = threading.Thread(target=run, name="fingerprint", daemon=True)
    collecting.start()
    collecting.join(deadline_s)
    about = {"schema": SCHEMA, "taken_at": at, "took_s": time.monotonic() - began}
    return dict(about, unknown=dict(unknown), **{name: dict(part) for name, part in parts.items()})


def _identity(base: str, record: Record, observed: Record, check: Callable[[], None]) -> Sections:
    """What takes longest comes last."""
    path, environment = str(record.get("release") or ""), record["environment"]
    folders = _site_folders(observed)
    gpus = observed.get("gpus") or {}

    def asked(read: Callable[..., Any], *words: Any) -> Callable[[], Any]:
        """Of the environment, whose interpreter must have said where its packages are."""

        def section() -> Any:
            if not folders:
                raise NotAskedError("its interpreter did not say where its packages are")
            return read(folders, *words)

        return section

    return {
        "spec": lambda: spec_facts(record, base),
        "release": lambda: release_facts.release_facts(path),
        "python": lambda: _python(observed, base),
        "lock": lambda: lock_of(base, record, observed),
        "packages": asked(packages.packages),
        "origins": asked(packages.origins),
        "torch": asked(packages.torch_facts),
        "driver": lambda: driver_facts(gpus.get("driver")),
        "gpus": lambda: _gpus(observed)["identity"],
        "variables": lambda: variable_facts(environment, base, record.get("python")),
        "limits": limits,
        "container": lambda: _container(observed),
        "machine": machine_facts,
        "expected": lambda: release_facts.expected_files(path, observed.get("expected") or {}, check),
        "edited": lambda: release_facts.edited(path, check),
        "builds": asked(packages.builds, check),
        "model": lambda: content.content_facts(record.get("model"), environment, check),
        "data": lambda: content.content_facts(record.get("data"), environment, check),
        "package_edits": asked(package_edits, check),
    }


def _observations(base: str, record: Record, observed: Record, check: Callable[[], None]) -> Sections:
    return {
        "orch": lambda: {"version": observed.get("orch_version"), "agent_hash": agent_hash()},
        "deployed": lambda: release_facts.release_record(str(record.get("release") or "")),
        "gpu_state": lambda: _gpus(observed)["state"],
        "host": lambda: {"hostname": os.uname().nodename, "boot_id": boot_id()},
        "disk": lambda: {"free_bytes": _size_and_free(base)[1]},
        "written": lambda: {name: content.newest_change(record.get(name), check) for name in ("data", "model")},
        "cache": lambda: cache_facts(record["environment"]),
    }


def files_to_keep(path_of_release: str, identity: Record) -> Dict[str, str]:
    """sha256 -> path of what was edited and of what is expected: no release holds their contents."""
    edits = identity.get("edited") or {}
    found = {token.partition("+")[0]: os.path.join(path_of_release, path) for path, token in edits.items()}
    for path, about in (identity.get("expected") or {}).items():
        found[about["found"]] = os.path.join(path_of_release, path)
    return {sha256: path for sha256, path in found.items() if len(sha256) == 64}


def spec_facts(record: Record, base: str) -> Record:
    argv = [settled(str(word), base) for word in record.get("argv") or []]
    if argv and record.get("python") and argv[0] == settled(str(record["python"]), base):
        argv[0] = "python"  # which one is a fact of its own
    return dict({name: record.get(name) for name in OF_THE_SPEC}, argv=argv)


def _python(observed: Record, base: str) -> Record:
    told = observed.get("python")
    if not told:
        raise NotAskedError(observed.get("python_problem") or "it was not asked")
    path = told.get("executable") or told.get("path")
    return {"version": told.get("version"), "executable": settled(str(path), base) if path else None}


def lock_of(base: str, record: Record, observed: Record) -> str | None:
    """The lock of the environment, if it was made from one, by its name; None: it was not. A second build of a lock
    has a number after that."""
    made = (record.get("python_environment") or {}).get("id")
    if made:
        return str(made).partition("-")[0]
    prefix = str((observed.get("python") or {}).get("prefix") or "")
    found = re.match(re.escape(base) + r"/envs/([^/]+)$", prefix)
    return found.group(1).partition("-")[0] if found else None


def driver_facts(told: Any = None) -> Record | None:
    """told: what nvidia-smi says of it, for where the driver's own file is not seen. None: there is no NVIDIA driver.
    Raises OSError."""
    text = driver_text()
    if text is None:
        return {"version": told} if told else None
    return {"version": parse_driver(text), "text": text}


def _gpus(observed: Record) -> Record:
    """None for what is not there. Raises ValueError with nvidia-smi's own words."""
    if observed.get("gpus_error"):
        raise ValueError(observed["gpus_error"])
    if "gpus" not in observed:
        raise NotAskedError("nvidia-smi was not asked")
    return observed["gpus"] or {"identity": None, "state": None}


def _container(observed: Record) -> Record:
    if observed.get("container") is None:
        raise NotAskedError("the host's file of it could not be read")
    return dict(observed["container"])


def limits() -> Record:
    return {
        **cgroup.limit_facts(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "shm_bytes": _size_and_free("/dev/shm")[0],
    }


def machine_facts() -> Record:
    name = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        libc = None  # another libc
    pages = re.search(r"\[(\w+)\]", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
    model = re.search(r"^model name\s*:\s*(.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return {
        "kernel": name.release,
        "architecture": name.machine,
        "libc": libc,
        "cpu_model": model.group(1) if model else None,
        "huge_pages": pages.group(1) if pages else None,
    }


def cache_facts(environment: Dict[str, Any]) -> Record:
    folders = {name: str(environment[name]) for name in CACHE_VARIABLES if environment.get(name)}
    return {"folders": cache.measure(folders, CACHE_FILES, CACHE_S), "counted_at": time.time()}


def _site_folders(observed: Record) -> List[str]:
    python = observed.get("python") or {}
    return [str(path) for path in python.get("site_folders") or []]


def _size_and_free(path: str) -> Tuple[int | None, int | None]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""

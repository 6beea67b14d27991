"""fingerprint.json: what a run starts from, as files and the kernel tell it. Written before the training starts.

Rule: it never fails a launch and never holds one up: each section is collected by itself, within one deadline for
all, and is null when it cannot be known. Nothing is imported or executed of what it describes. Values of
environment variables that may be secrets are not in it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from . import cache, cgroup, records
from .identity import boot_id
from .records import Record, contract
from .sources import agent_hash

SCHEMA = "orch.fingerprint/1"
DEADLINE_S = 3.0
CACHE_S = 1.0
CACHE_FILES = 100_000
"""The caches are counted for so long, and so far."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")

SHOWN = re.compile(
    r"(TORCH|TRITON|CUDA|NVIDIA_|NCCL|PYTORCH|OMP_|MKL_|OPENBLAS_|KMP_|GOMP_|PYTHON|LD_|HF_|TRANSFORMERS_|TOKENIZERS_"
    r"|XLA_|CUBLAS|CUDNN|TF32|GLOO_|UCX_|MALLOC_|ORCH_).*|PATH|HOME|USER|LOGNAME|LANG|LC_.*|TMPDIR|TEMP|TMP|TZ|VIRTUAL_ENV"
)
"""Variables whose values are kept: they change what a training does. Of all others the name."""
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|SIGNATURE", re.IGNORECASE)
SECRET_VALUE = re.compile(r"://[^/\s]*@|\bhf_[A-Za-z0-9]{16,}|\bBearer\b", re.IGNORECASE)


def write(folder: str, base: str, record: Record, observed: Record) -> None:
    """folder: the run's; record: its run.json; observed: what the controller has from preflight. Never raises."""
    began, at = time.monotonic(), time.time()
    sections: Dict[str, Callable[[], Any]] = {
        "orch": lambda: {"version": observed.get("orch_version"), "agent_hash": agent_hash()},
        "spec": lambda: {name: value for name, value in record.items() if name != "environment"},
        "release": lambda: release_facts(str(record.get("release") or "")),
        "python": lambda: observed.get("python"),
        "packages": lambda: packages(_site_folders(observed)),
        "torch": lambda: torch_facts(_site_folders(observed)),
        "driver": lambda: driver_facts(),
        "nvidia_smi": lambda: observed.get("nvidia_smi"),
        "variables": lambda: variable_facts(record["environment"]),
        "limits": lambda: limits(base),
        "machine": machine_facts,
        "cache": lambda: cache_facts(record["environment"]),  # last: it takes longest
    }
    told: Record = {name: None for name in sections}
    unknown: Dict[str, str] = {name: "not done within %g s" % DEADLINE_S for name in sections}

    def collect() -> None:
        for name, section in sections.items():
            try:
                told[name] = section()
                unknown.pop(name)
            except Exception as error:  # whatever it is, the training matters more
                unknown[name] = ("%s: %s" % (type(error).__name__, error))[:200]

    collecting = threading.Thread(target=collect, name="fingerprint", daemon=True)
    collecting.start()
    collecting.join(DEADLINE_S)
    about = {"schema": SCHEMA, "run_id": record.get("run_id"), "taken_at": at, "took_s": time.monotonic() - began}
    try:
        records.write_record(folder, contract.FINGERPRINT, dict(dict(told), **about, unknown=dict(unknown)))
    except (OSError, ValueError, TypeError, RuntimeError):
        return


def release_facts(release: str) -> Record | None:
    """Of its record beside it. None: it is no release of ours. Raises OSError, ValueError."""
    if not os.path.isfile(release.rstrip("/") + ".json"):
        return None
    with open(release.rstrip("/") + ".json", encoding="ascii") as stream:
        kept = json.load(stream)
    provenance = kept.get("provenance") or {}
    names = ("tree_hash", "files", "bytes", "pushed_at")
    by = {name: provenance.get(name) for name in ("git", "payload", "deployed_by")}
    return dict({name: kept.get(name) for name in names}, path=release, **by)


def packages(folders: List[str]) -> Dict[str, str] | None:
    """Name (lower case, dashes) -> version, as the names of the .dist-info and .egg-info folders say. None: unknown.

    The first folder that holds a package is the one it is imported from."""
    if not folders:
        return None
    found: Dict[str, str] = {}
    for folder in folders:
        here: Dict[str, str] = {}
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            stem, dot, kind = name.rpartition(".")
            if dot and kind in ("dist-info", "egg-info"):
                package, dash, version = stem.partition("-")
                if kind == "egg-info":
                    version = re.sub(r"-py\d.*", "", version)
                if dash and package and not package.startswith("~"):  # pip's, half removed
                    here[re.sub(r"[-_.]+", "-", package).lower()] = version
        for package, version in here.items():
            found.setdefault(package, version)
    return dict(sorted(found.items()))


def torch_facts(folders: List[str]) -> Record | None:
    """Of torch/version.py, read as text. None: there is no torch. Raises OSError, SyntaxError."""
    for folder in folders:
        path = os.path.join(folder, "torch", "version.py")
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                said = parse_assignments(stream.read())
            about = {name: said.get(name) for name in ("git_version", "cuda", "hip", "debug")}
            return dict(about, version=said.get("__version__"), path=os.path.join(folder, "torch"))
    return None


def parse_assignments(source: str) -> Dict[str, Any]:
    """`name = constant` and `name: type = constant` at the top of a module. Raises SyntaxError, ValueError."""
    found: Dict[str, Any] = {}
    for node in ast.parse(source).body:
        targets: List[Any] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant):
            found.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return found


def driver_facts() -> Record | None:
    """None: there is no NVIDIA driver. Raises OSError."""
    path = "/proc/driver/nvidia/version"
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read(4096)
    return {"version": parse_driver(text), "text": text.splitlines()[0] if text else ""}


def parse_driver(text: str) -> str | None:
    """`NVRM version: NVIDIA UNIX [Open] x86_64 Kernel Module [for x86_64]  580.65.06  ...`"""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None


def variable_facts(environment: Dict[str, Any]) -> Record:
    """{values: {name: value}, names: [those whose value is not told]}"""
    values = {name: str(value) for name, value in environment.items() if may_be_shown(name, str(value))}
    return {"values": values, "names": sorted(set(environment) - set(values))}


def may_be_shown(name: str, value: str) -> bool:
    return bool(SHOWN.fullmatch(name)) and not SECRET.search(name) and not SECRET_VALUE.search(value)


def limits(base: str) -> Record:
    container = cgroup.container_facts()
    return {
        "memory_bytes": container["memory_limit_bytes"],
        "cpu_cores": container["cpu_limit_cores"],
        "cpus": sorted(os.sched_getaffinity(0)),
        "shm_bytes": _size_and_free("/dev/shm")[0],
        "disk_free_bytes": _size_and_free(base)[1],
    }


def machine_facts() -> Record:
    name = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        libc = None  # another libc
    return {
        "kernel": name.release,
        "architecture": name.machine,
        "libc": libc,
        "hostname": name.nodename,
        "boot_id": boot_id(),
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

"""Op preflight: facts for `launch` in one answer: is there what the run needs?

Rule: facts, no judgement, and every program that is asked has a deadline: nvidia-smi can hang for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from typing import Any, Dict, List

from . import live, records, session
from .commands import ask
from .gpu_identity import gpu_facts
from .records import Record

PYTHON_DEADLINE_S = 20.0
SMI_DEADLINE_S = 20.0

PYTHON_QUESTION = """
import json, os, site, sys
print('%d.%d.%d' % sys.version_info[:3]); print(sys.prefix); print(sys.executable)
folders = [path for path in sys.path if path.endswith('-packages')]
if sys.prefix == sys.base_prefix and os.path.isdir(site.getusersitepackages()):
    folders.insert(0, site.getusersitepackages())
print(json.dumps(folders))
"""
"""Asked with -I, which leaves out the user's own packages; the training will see them unless its Python is a venv's."""


def preflight(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, python (or None), tmux_wanted, nvidia_smi (the argv; None: it is not asked), paths (list), gpus
    (whether they are looked at for the fingerprint: nvidia_smi is then asked only where that says nothing of them).

    python: {path, version, prefix, executable, site_folders, error}; tmux: {path, version, error} or None;
    nvidia_smi: {csv, error, exit_code} or None; paths: {path: exists}; disk: {free_bytes, free_inodes};
    shm_free_bytes; memory; live; gpus (as gpu_identity.gpu_facts) or gpus_error, where they were
    looked at.
    """
    base = records.base_folder(params)
    looked: Record = {}
    looking = threading.Thread(target=_look_at_gpus, args=(looked,), daemon=True)
    if params.get("gpus"):
        looking.start()
    facts = _facts(base, params)
    if params.get("gpus"):
        looking.join()
    asked = params.get("nvidia_smi") and not looked.get("gpus")
    return dict(facts, nvidia_smi=_nvidia_smi(list(params["nvidia_smi"])) if asked else None, **looked)


def _look_at_gpus(looked: Record) -> None:
    try:
        looked["gpus"] = gpu_facts()
    except ValueError as error:
        looked["gpus_error"] = str(error)


def _facts(base: str, params: Record) -> Record:
    return {
        "live": live.facts(base),
        "python": python_facts(params.get("python")),
        "tmux": _tmux() if params.get("tmux_wanted") else None,
        "disk": _disk(base),
        "shm_free_bytes": _disk("/dev/shm")["free_bytes"],
        "memory": parse_meminfo(_text("/proc/meminfo")),
        "paths": {str(path): os.path.exists(str(path)) for path in params.get("paths") or []},
        "cpus": len(os.sched_getaffinity(0)),
    }


def python_facts(wanted: Any) -> Record:
    """{path, version, prefix, executable, site_folders, error}, as that interpreter says."""
    path = shutil.which(str(wanted)) if wanted else shutil.which("python") or shutil.which("python3")
    about: Record = {"path": path, "version": None, "prefix": None, "executable": None}
    about.update(site_folders=None, error=None)
    if path is None:
        return dict(about, error="there is no %s" % (wanted or "python or python3 on PATH"))
    code, out, error = ask([path, "-I", "-c", PYTHON_QUESTION], PYTHON_DEADLINE_S)
    lines = out.splitlines()
    if code != 0 or len(lines) != 4:
        return dict(about, error=error or out or "exit code %s" % code)
    return dict(about, version=lines[0], prefix=lines[1], executable=lines[2], site_folders=json.loads(lines[3]))


def _tmux() -> Record:
    path = shutil.which("tmux")
    if path is None:
        return {"path": None, "version": None, "error": "tmux is not installed"}
    code, out, error = ask([path, "-V"], session.TMUX_DEADLINE_S)
    version = out.strip().rpartition(" ")[2] if code == 0 else None
    return {"path": path, "version": version, "error": None if code == 0 else error or out}


def _nvidia_smi(argv: List[str]) -> Record:
    path = shutil.which(argv[0])
    if path is None:
        return {"csv": None, "exit_code": None, "error": "nvidia-smi is not installed"}
    code, out, error = ask([path, *argv[1:]], SMI_DEADLINE_S)
    # It says many of its errors on stdout.
    return {"csv": out, "exit_code": code, "error": None if code == 0 else (error or out or "exit code %s" % code)}


def _disk(path: str) -> Record:
    """Of the nearest folder above that exists."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path)
    with contextlib.suppress(OSError):
        found = os.statvfs(path)
        # A file system without a fixed number of inodes says 0 of 0.
        inodes = found.f_favail if found.f_files else None
        return {"free_bytes": found.f_bavail * found.f_frsize, "free_inodes": inodes}
    return {"free_bytes": None, "free_inodes": None}


def parse_meminfo(text: str) -> Dict[str, Any]:
    found = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) == 3 and words[1].isdigit() and words[2] == "kB":
            found[words[0]] = int(words[1]) * 1024
    return {"total_bytes": found.get("MemTotal"), "available_bytes": found.get("MemAvailable")}


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()
    return ""

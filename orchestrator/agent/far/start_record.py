"""What a training sees and which program it is: the parts of run.json that are found out on the target."""

from __future__ import annotations

import os
import pwd
import shutil
from typing import Any, Dict, List

from .records import contract

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def training_environment(given: Dict[str, str], folder: str, python: Any = None) -> Dict[str, str]:
    """All that the training sees: a login's bare minimum, what was given, and the run's own variables.

    The programs beside the payload's interpreter come first on PATH, as in an activated environment: torch's
    extensions look for ninja there."""
    user = pwd.getpwuid(os.getuid())
    environment = {
        "HOME": os.environ.get("HOME") or user.pw_dir,
        "USER": os.environ.get("USER") or user.pw_name,
        "LOGNAME": os.environ.get("LOGNAME") or user.pw_name,
        "PATH": os.environ.get("PATH") or DEFAULT_PATH,
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    if python and os.path.isabs(str(python)):
        environment["PATH"] = os.path.dirname(str(python)) + ":" + environment["PATH"]
    environment.update({str(name): str(value) for name, value in given.items()})
    environment[contract.RUN_DIR_VARIABLE] = folder
    environment[contract.RUN_ID_VARIABLE] = os.path.basename(folder)
    return environment


def resolve_python(argv: List[str], python: Any, path: str) -> List[str]:
    """A first word `python` means the payload's interpreter, or whichever python there is."""
    if argv[0] != "python":
        return argv
    if python:
        return [str(python), *argv[1:]]
    return argv if shutil.which("python", path=path) else ["python3", *argv[1:]]

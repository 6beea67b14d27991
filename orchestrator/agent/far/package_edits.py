"""Files of installed packages that somebody changed: `vim .../torch/_inductor/config.py` leaves version and RECORD as
they were.

Rule: of the tens of thousands of files only those are read that have another size than RECORD says, or were written
after it; an edit that keeps the size and sets the time back is left to `orch env check`.
"""

from __future__ import annotations

import base64
import os
import stat
from typing import Callable, Dict, List

from . import packages
from .env_dists import LOOSE_BY_TOOLS, installed_at, records
from .release_facts import hashes_of

MISSING = "missing"
MAX_TOLD = 2000
CLOCK_S = 2.0
"""RECORD is written last; a file may be so much newer than it and still be of the same installation."""
CHECK_EVERY = 512

Check = Callable[[], None]


def package_edits(folders: List[str], check: Check = lambda: None) -> Dict[str, str]:
    """Path below its site folder -> sha256, or `missing`, of each file that is not as RECORD says; and of what lies at
    the top of a site folder, is loaded from there and belongs to no package: .pth, .py, .so. {}: nothing was touched.

    Raises OSError, ValueError (too many), and what check raises."""
    found: Dict[str, str] = {}
    owned = set()
    for _, (_, info) in sorted(packages.found_folders(folders).items()):
        check()
        site = os.path.dirname(info)
        written_at = installed_at(info)
        for number, (path, digest, size) in enumerate(records({"info": info})[0]):
            if number % CHECK_EVERY == 0:
                check()
            owned.add(path)
            if digest.startswith("sha256=") and not path.endswith((".pyc", ".pyo")):
                token = _token(path, digest, size, written_at, check)
                if token is not None:
                    _add(found, os.path.relpath(path, site), token)
    for folder in folders:
        for path in _loose(folder):
            if path not in owned:
                _add(found, os.path.basename(path), hashes_of(path, {"sha256"}, check)["sha256"])
    return dict(sorted(found.items()))


def _add(found: Dict[str, str], name: str, token: str) -> None:
    found.setdefault(name, token)
    if len(found) > MAX_TOLD:
        raise ValueError("more than %d files of packages are not as they were installed" % MAX_TOLD)


def _token(path: str, digest: str, size: int | None, installed_at: float, check: Check) -> str | None:
    """None: it is as it was installed."""
    try:
        seen = os.stat(path)
        if not stat.S_ISREG(seen.st_mode):
            return "no regular file"
        if seen.st_size == size and seen.st_mtime <= installed_at + CLOCK_S:
            return None
        sha256 = hashes_of(path, {"sha256"}, check)["sha256"]
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        return "cannot be read: %s" % error.strerror
    recorded = base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode("ascii").rstrip("=")
    return None if recorded == digest.partition("=")[2].rstrip("=") else sha256


def _loose(folder: str) -> List[str]:
    """As site and the import system would find them."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    wanted = [name for name in names if name.endswith((".pth", ".py", ".so")) and name not in LOOSE_BY_TOOLS]
    return [path for path in (os.path.join(folder, name) for name in sorted(wanted)) if os.path.isfile(path)]

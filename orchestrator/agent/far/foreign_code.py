"""Which code a training runs that nobody deployed: the files beside it, by their hashes.

Rule: bounded, and no environment, data or cache is walked into.
"""

from __future__ import annotations

import contextlib
import os
from typing import Dict, List

from .manifest import ManifestError
from .release_facts import CODE
from .scan import hash_file

MAX_DEPTH = 3
MAX_FILES = 1000
MAX_FOLDERS = 200
MAX_FILE_BYTES = 4 * 1024 * 1024


def listing(cwd: str, argv: List[str], base: str) -> Dict[str, str]:
    """Path (relative to cwd where it is below) -> sha256: code files in cwd, and the script that was named."""
    paths = _code_below(cwd, base)
    for word in argv[1:]:
        path = os.path.join(cwd, word)
        if word.endswith(CODE) and os.path.isfile(path) and path not in paths:
            paths.append(path)
            folder = os.path.dirname(path)
            if folder != cwd and not folder.startswith(cwd.rstrip("/") + "/"):
                paths += [found for found in _code_below(folder, base) if found not in paths]
    found = {}
    for path in paths[:MAX_FILES]:
        with contextlib.suppress(OSError, ManifestError):
            if os.path.getsize(path) <= MAX_FILE_BYTES:
                inside = path.startswith(cwd.rstrip("/") + "/")
                found[os.path.relpath(path, cwd) if inside else path] = hash_file(path)[0]
    return found


def _code_below(top: str, base: str) -> List[str]:
    found: List[str] = []
    waiting = [(top, 0)]
    folders = 0
    while waiting and folders < MAX_FOLDERS and len(found) < MAX_FILES:
        folder, depth = waiting.pop(0)
        folders += 1
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.name.startswith(".") or entry.name in ("__pycache__", "site-packages", "node_modules"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    environment = os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
                    if depth + 1 < MAX_DEPTH and not environment and entry.path != base:
                        waiting.append((entry.path, depth + 1))
                elif entry.name.endswith(CODE) and entry.is_file(follow_symlinks=False):
                    found.append(entry.path)
    return found

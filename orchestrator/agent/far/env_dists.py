"""What lies in a site-packages folder: distributions, .pth files, what an installer left half removed, loose files.

Rule: names and small files are read; nothing is imported or executed.
"""

from __future__ import annotations

import json
import os
import re

from . import packages
from .regular import read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Tuple

    Facts = Dict[str, Any]

MAX_METADATA_BYTES = 512 * 1024
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_JSON_BYTES = 1024 * 1024
MAX_LINES = 200
REQUIRED = re.compile(r"(?:nvidia-|cuda-|torch|triton|pytorch-triton)", re.IGNORECASE)
"""Requirements that are told of every package; torch's own are told whole."""
LOOSE_BY_TOOLS = ("_virtualenv.py", "_virtualenv.pth", "README.txt", "__pycache__")
"""virtualenv and uv put these beside the packages."""


def look_at(folder: str) -> Facts:
    """{folder, packages, half_removed, pth}; of a folder that is not there, nothing in it. A package's `build` is what
    packages.builds tells; None: it has no RECORD."""
    found: Facts = {"folder": folder, "packages": [], "half_removed": [], "pth": []}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return found
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith("~"):
            found["half_removed"].append(name)
        elif name.endswith((".dist-info", ".egg-info")):
            found["packages"].append(distribution(path, name))
        elif name.endswith(".egg-link"):
            found["packages"].append(_egg_link(path, name))
        elif name.endswith(".pth"):
            found["pth"].append({"file": name, "lines": _lines(path)})
    builds = packages.builds([folder])
    for package in found["packages"]:
        package["build"] = builds.get(packages.normalise(package["name"]))
    return found


def distribution(path: str, name: str) -> Facts:
    """name, version: of METADATA, else of the folder's name."""
    told, version = packages.name_and_version(name)
    file = "METADATA" if name.endswith(".dist-info") else "PKG-INFO"
    metadata = os.path.join(path, file) if os.path.isdir(path) else path
    head = _header(metadata)
    url = _json(os.path.join(path, "direct_url.json"))
    requires = head.get("requires-dist", [])
    package: Facts = {
        "name": next(iter(head.get("name", [])), told),
        "version": next(iter(head.get("version", [])), version),
        "info": path,
        "metadata": bool(head.get("name")),
        "installer": next(iter(_lines(os.path.join(path, "INSTALLER"))), None),
        "url": packages.without_login(str(url["url"])) if url.get("url") else None,
        "editable": bool((url.get("dir_info") or {}).get("editable")),
        "commit": (url.get("vcs_info") or {}).get("commit_id"),
        "tags": (_header(os.path.join(path, "WHEEL")).get("tag") or [])[:8],
    }
    whole = packages.normalise(package["name"]) == "torch"
    package["requires"] = [line for line in requires if whole or REQUIRED.match(line)][:MAX_LINES]
    return package


def records(package: Facts) -> Tuple[List[Tuple[str, str, int | None]], int]:
    """([(absolute path, hash as RECORD writes it or "", size) of each file], lines that cannot be read); no file when
    there is no RECORD."""
    site = os.path.dirname(str(package["info"]))
    found, unread = [], 0
    try:
        text = read_regular(os.path.join(str(package["info"]), "RECORD"), MAX_RECORD_BYTES).decode("utf-8", "replace")
    except OSError:
        return [], 0
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if not line:
            continue
        row = _row(line)
        if row is None:
            unread += 1
            continue
        path, digest, size = row
        found.append((os.path.normpath(os.path.join(site, path)), digest, size))
    return found, unread


def installed_at(info: str) -> float:
    """When its RECORD was written, the last thing of an installation; 0: it has none."""
    try:
        return os.stat(os.path.join(info, "RECORD")).st_mtime
    except OSError:
        return 0.0


def _row(line: str) -> Tuple[str, str, int | None] | None:
    """Line by line, so that a quote without its other does not swallow the lines after it."""
    if '"' in line:
        import csv

        try:
            row = next(csv.reader([line], strict=True))
        except csv.Error:
            return None
    else:
        row = line.split(",")
    path, digest, size = (*row, "", "", "")[:3]
    if not path or "\0" in path or len(row) > 3 or not re.fullmatch(r"[0-9]{0,18}", size):
        return None
    return path, digest, int(size) if size else None


def top_modules(folder: str) -> Dict[str, str]:
    """Top-level module -> path. A folder without __init__.py is none: it hides nothing that comes after it."""
    found: Dict[str, str] = {}
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries:
        name, dot, ending = entry.name.partition(".")
        if not name.isidentifier():
            continue
        if dot and (ending == "py" or ending.endswith("so")):
            found.setdefault(name, entry.path)
        elif not dot and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            found[name] = entry.path  # a package comes before a module of that name
    return found


def _egg_link(path: str, name: str) -> Facts:
    target = (_lines(path) or [""])[0]
    info = {"name": name[: -len(".egg-link")], "version": None, "info": path, "metadata": False, "installer": None}
    about = {"url": "file://" + target, "editable": True, "commit": None, "tags": []}
    return dict(info, requires=[], **about)


def _header(path: str) -> Dict[str, List[str]]:
    """Field in lower case -> its values, of what stands before the first empty line."""
    found: Dict[str, List[str]] = {}
    try:
        text = read_regular(path, MAX_METADATA_BYTES).decode("utf-8", "replace")
    except OSError:
        return found
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if not line:
            break
        field, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            found.setdefault(field.strip().lower(), []).append(value.strip())
    return found


def _lines(path: str) -> List[str]:
    try:
        text = read_regular(path, 64 * 1024).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip()[:1000] for line in text.splitlines() if line.strip()][:MAX_LINES]


def _json(path: str) -> Facts:
    try:
        value = json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

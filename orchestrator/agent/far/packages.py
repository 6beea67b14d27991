"""Which packages an environment holds, as the files of installers say. Nothing is imported or executed."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .regular import read_regular

Check = Callable[[], None]
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_JSON_BYTES = 1024 * 1024


def packages(folders: List[str]) -> Dict[str, str]:
    """Name (lower case, dashes) -> version, as the names of the .dist-info and .egg-info folders say."""
    return {name: version for name, (version, _) in sorted(found_folders(folders).items())}


def found_folders(folders: List[str]) -> Dict[str, Tuple[str, str]]:
    """Name -> (version, its .dist-info or .egg-info). The first folder that holds a package is the one it is imported
    from."""
    found: Dict[str, Tuple[str, str]] = {}
    for folder in folders:
        here: Dict[str, Tuple[str, str]] = {}
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                package, version = name_and_version(name)
                if version is not None and package and not package.startswith("~"):  # pip's, half removed
                    here[normalise(package)] = (version, os.path.join(folder, name))
        for package, about in here.items():
            found.setdefault(package, about)
    return found


def name_and_version(folder: str) -> Tuple[str, str | None]:
    """As the name of a .dist-info or .egg-info folder says them."""
    stem, _, kind = folder.rpartition(".")
    name, dash, version = stem.partition("-")
    if kind == "egg-info":
        version = re.sub(r"-py\d.*", "", version)
    return name, version if dash else None


def normalise(name: str) -> str:
    """PEP 503: lower case, each run of `-`, `_` and `.` one dash."""
    return re.sub(r"[-_.]+", "-", name).lower()


def origins(folders: List[str]) -> Dict[str, str]:
    """Of packages that came from no index: name -> `editable file:///x`, `git+https://...@commit`, a URL."""
    found = {}
    for name, (_, about) in sorted(found_folders(folders).items()):
        try:
            said = read_regular(os.path.join(about, "direct_url.json"), MAX_JSON_BYTES)
            found[name] = origin_text(json.loads(said.decode("utf-8")))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError, RecursionError):
            found[name] = "not to be read"
    return found


def origin_text(told: Dict[str, Any]) -> str:
    """Of a direct_url.json."""
    url = without_login(str(told.get("url")))
    vcs = told.get("vcs_info") or {}
    if vcs:
        return "%s+%s@%s" % (vcs.get("vcs"), url, vcs.get("commit_id"))
    return ("editable " if (told.get("dir_info") or {}).get("editable") else "") + url


def without_login(url: str) -> str:
    """And without what stands after a question mark: an address may be signed there."""
    return re.sub(r"\?[^#]*", "?...", re.sub(r"://(?:[^/\s]*|[^\s/:]*:\S*)@", "://", url))


def builds(folders: List[str], check: Check = lambda: None) -> Dict[str, str]:
    """Name -> 16 hex digits over what its RECORD lists: two builds of one version have different ones.

    Without what depends on who installed it, and where: byte code, scripts, the .dist-info itself."""
    found = {}
    for name, (_, about) in sorted(found_folders(folders).items()):
        check()
        try:
            rows = read_regular(os.path.join(about, "RECORD"), MAX_RECORD_BYTES).splitlines()
        except OSError:
            continue
        digest = hashlib.sha256(b"\n".join(sorted(_of_the_wheel(rows))))
        found[name] = digest.hexdigest()[:16]
    return found


def _of_the_wheel(rows: List[bytes]) -> Iterator[bytes]:
    for row in rows:
        path = row.split(b",", 1)[0]
        if b"__pycache__" not in path and b".dist-info/" not in path and not path.startswith((b"..", b"/")):
            yield row


def torch_facts(folders: List[str]) -> Dict[str, Any] | None:
    """Of torch/version.py, read as text. None: there is no torch. Raises OSError, SyntaxError."""
    for folder in folders:
        path = os.path.join(folder, "torch", "version.py")
        if os.path.isfile(path):
            said = parse_assignments(read_regular(path, MAX_JSON_BYTES).decode("utf-8", "replace"))
            about = {name: said.get(name) for name in ("git_version", "cuda", "hip", "debug")}
            return dict(about, version=said.get("__version__"))
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

"""Op who_imports: which file of a release imports a module as soon as the payload's command runs.

Rule: rather too many files are reached than too few: every import, wherever it stands, and every word in quotes that
names one (`import_module("models.a")`, a worker started as `worker.py`). A command that names none reaches all.
"""

from __future__ import annotations

import ast
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Set

MAX_FILES = 5000
MAX_S = 8.0
"""What was not read by then counts for nothing."""
MAX_FILE_BYTES = 4 * 1024 * 1024


def who_imports(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """params: folder, argv, module. {"by": a path in the folder, None: none does, "lacks": the script that argv names
    and the folder has not, None: it has it, or argv names none there}. Counted is an import that stands by itself: not
    in a function, nor in a `try`."""
    folder = os.path.realpath(str(params["folder"]))
    argv = [str(word) for word in params["argv"]]
    return {"by": _who(folder, argv, str(params["module"]), channel), "lacks": _lacks(folder, argv)}


def _lacks(folder: str, argv: List[str]) -> Optional[str]:
    script = next((word for word in argv if word.endswith(".py") and not word.startswith("-")), None)
    return script if script is not None and not os.path.exists(os.path.join(folder, script)) else None


def _who(folder: str, argv: List[str], module: str, channel: Any) -> Optional[str]:
    until = time.monotonic() + MAX_S
    named = list(_named(folder, argv))
    waiting = [*named] or sorted(_all(folder))
    seen: Set[str] = set(waiting)
    while waiting and len(seen) <= MAX_FILES and time.monotonic() < until:
        channel.check()
        path = waiting.pop(0)
        tree = _parsed(path, "" if named else module)
        if tree is None:
            continue
        if any(_imports(node, module) for node in tree.body):
            return os.path.relpath(path, folder)
        for found in _reached(tree, path, folder) if named else ():
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return None


def _named(folder: str, argv: List[str]) -> Iterator[str]:
    for number, word in enumerate(argv):
        yield from _files(folder, word[:-3].replace("/", ".") if word.endswith(".py") else "")
        if word == "-m" and number + 1 < len(argv):
            yield from _files(folder, argv[number + 1])
            yield from _files(folder, argv[number + 1] + ".__main__")


def _all(folder: str) -> Iterator[str]:
    for top, _, names in os.walk(folder):
        yield from (os.path.join(top, name) for name in names if name.endswith(".py"))


def _parsed(path: str, word: str) -> ast.Module | None:
    """None: it is no Python, or the word is not in it."""
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            return None
        with open(path, "rb") as stream:
            text = stream.read()
        return ast.parse(text) if word.encode() in text else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imports(node: ast.stmt, module: str) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == module for alias in node.names)
    return isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == module


def _reached(tree: ast.Module, path: str, folder: str) -> Iterator[str]:
    beside = os.path.dirname(path)
    for node in ast.walk(tree):
        names: List[str] = []
        at = beside
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for _ in range(node.level - 1):
                at = os.path.dirname(at)
            names = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 256:
            names = [node.value[:-3].replace("/", ".") if node.value.endswith(".py") else node.value]
        for name in names:
            for top in dict.fromkeys((at, folder)):
                if (top + "/").startswith(folder + "/"):
                    yield from _files(top, name)


def _files(top: str, name: str) -> Iterator[str]:
    """Of a module's dotted name below a folder: its own and its packages'."""
    parts = [part for part in name.split(".") if part]
    if not all(part.isidentifier() for part in parts):
        return
    for count in range(1, len(parts) + 1):
        stem = os.path.join(top, *parts[:count])
        for path in (stem + ".py", os.path.join(stem, "__init__.py")):
            if os.path.isfile(path):
                yield os.path.realpath(path)

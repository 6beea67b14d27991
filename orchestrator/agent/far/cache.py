"""Op cache_stats: how large the compile caches are, and how many graphs are in them. Reads names and sizes only.

Rule: bounded: beyond a number of files, or a time, it stops and says so; what it then says is "at least". Links
are not followed, but for a cache's own folder, which may be one.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, Dict, Iterator, Tuple

MAX_FILES = 500_000
MAX_S = 5.0
CHECK_EVERY = 1024
GRAPHS = "fxgraph"
"""Inductor keeps one compiled graph in each <cache>/fxgraph/<xx>/<key>/."""


def cache_stats(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """folders: {name: absolute path}, max_files, max_s (for all of them together), base (or None: what is new since the
    live or newest run there was launched is counted, too). {"folders": as `measure` tells, "counted_at"}."""
    max_files, max_s = int(params.get("max_files", MAX_FILES)), float(params.get("max_s", MAX_S))
    since = _launched_at(params["base"]) if params.get("base") else None
    return {"folders": measure(params["folders"], max_files, max_s, channel.check, since), "counted_at": time.time()}


def _launched_at(base: str) -> float | None:
    from . import live, records  # a watch says it by itself

    run_id = records.latest_run(base, live.facts(base))
    spec = records.read_record(records.run_folder(base, run_id), records.contract.RUN_SPEC) if run_id else None
    at = (spec or {}).get("created_at")
    return at if isinstance(at, (int, float)) else None


def measure(
    folders: Dict[str, str],
    max_files: int = MAX_FILES,
    max_s: float = MAX_S,
    check: Callable[[], None] = lambda: None,
    since: float | None = None,
) -> Dict[str, Dict[str, Any]]:
    """Name -> {path, exists, bytes, files, entries, newest_mtime, oldest_mtime, complete, unreadable}.

    With `since` (Unix time) also {new_files, new_graphs}: made or written to since. By the time that nobody can set:
    what is seeded keeps its old mtime. Lock files are not counted: a hit opens them anew, too.

    bytes: the files' lengths. entries: compiled graphs; None for a cache that holds no such thing. newest_mtime and
    oldest_mtime: of a file; None when there is none. complete: false when it was stopped early. unreadable:
    folders that could not be listed.
    """
    counter = _Counter(max_files, time.monotonic() + max_s, check, since)
    return {name: counter.folder(name, path) for name, path in folders.items()}


class _Counter:
    def __init__(self, max_files: int, until: float, check: Callable[[], None], since: float | None) -> None:
        self._left = max_files
        self._until = until
        self._check = check
        self._since = since

    def folder(self, name: str, path: str) -> Dict[str, Any]:
        found: Dict[str, Any] = {"path": path, "exists": os.path.isdir(path), "bytes": 0, "files": 0, "complete": True}
        found.update(entries=0 if "inductor" in name.lower() else None, newest_mtime=None, unreadable=0)
        if self._since is not None:
            found.update(new_files=0, new_graphs=0 if found["entries"] is not None else None)
        found["oldest_mtime"] = None
        if not found["exists"]:
            return dict(found, bytes=None, files=None, entries=None)
        for size, mtime in self._files(path, found):
            found["bytes"] += size
            found["files"] += 1
            if found["newest_mtime"] is None or mtime > found["newest_mtime"]:
                found["newest_mtime"] = mtime
            if found["oldest_mtime"] is None or mtime < found["oldest_mtime"]:
                found["oldest_mtime"] = mtime
            self._left -= 1
            if self._left % CHECK_EVERY == 0:
                self._check()
            if self._left <= 0 or (self._left % CHECK_EVERY == 0 and time.monotonic() > self._until):
                self._left = 0
                found["complete"] = False
                break
        return found

    def _files(self, top: str, found: Dict[str, Any]) -> Iterator[Tuple[int, float]]:
        """(length, mtime) of each file; counts the graphs on its way."""
        graphs = os.path.join(top, GRAPHS)
        waiting = [(top, 0)]  # folder, how many levels below fxgraph/ it is, and 1 more; 0: elsewhere
        while waiting:
            folder, level = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        try:
                            if entry.is_dir(follow_symlinks=False):
                                below = level + 1 if level or entry.path == graphs else 0
                                if below:
                                    found["entries"] = (found["entries"] or 0) + (below == 3)
                                if below == 3 and self._since is not None:
                                    is_new = entry.stat(follow_symlinks=False).st_ctime >= self._since
                                    found["new_graphs"] = (found["new_graphs"] or 0) + is_new
                                waiting.append((entry.path, below))
                            elif not entry.is_symlink():
                                seen = entry.stat(follow_symlinks=False)
                                if self._since is not None and seen.st_ctime >= self._since:
                                    found["new_files"] += not entry.name.endswith("lock")
                                yield seen.st_size, seen.st_mtime
                        except OSError:
                            continue  # a training that compiles removes its temporary files
            except FileNotFoundError:
                continue
            except OSError:
                found["unreadable"] += 1

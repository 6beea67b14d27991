"""Op cache_show: what is in the live compile caches by kind and device, who uses them, and how they compare with
snapshots. Reads names, sizes and times; of compiled graphs the content, for the device that their code names.

Rule: bounded in files and time; what was stopped says so. Links are not followed, but for a cache's own folder.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

from . import cache, live, process, records
from .cache_folders import nested, separate
from .cache_plan import find_plan
from .copying import each
from .errors import OpError
from .manifest import FILE
from .records import Record, contract
from .snapshots import SEEDED, Files, read_files, snapshot_folder

GUARD = re.compile(rb"_DeviceGuard\((\d{1,3})\)")
"""Inductor's code for one device begins so; a graph's entry holds its code as text."""
CPU = re.compile(rb"async_compile\.cpp\w*\(|cpp_fused")
MAX_GRAPH_BYTES = 8 * 1024 * 1024
DEVICES_S = 20.0
VARIABLES = {"inductor": "TORCHINDUCTOR_CACHE_DIR", "triton": "TRITON_CACHE_DIR", "extensions": "TORCH_EXTENSIONS_DIR"}
LOCKS = re.compile(r"(^|/)(locks/[^/]*|[^/]*\.lock|lock)$")


class File(NamedTuple):
    path: str
    """Below the cache's folder."""
    size: int
    mtime: float


def cache_show(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, folders {cache: absolute path}, against [snapshot names], like (see find_plan), max_files, max_s.

    {"folders": {cache: {path, exists, bytes, files, oldest_mtime, newest_mtime, complete, unreadable}},
    "kinds": {kind: {entries, files, bytes}}, "devices": {"cuda:0": graphs, ...}, "users", "launch", "seeded",
    "seeding": what a seeding that was cut short is to do, "plan": as find_plan tells,
    "against": {snapshot: {kinds, devices, bytes, files, same, changed, gone, new} or {"error"}}, "counted_at"}
    """
    base = records.base_folder(params)
    folders: Dict[str, str] = dict(params["folders"])
    until = time.monotonic() + float(params.get("max_s", cache.MAX_S))
    walk = _Walk(int(params.get("max_files", cache.MAX_FILES)), until, channel.check)
    inner = nested(folders)
    found = {name: walk.folder(path) for name, path in separate(folders).items()}
    files = {name: listed for name, (_, listed) in found.items()}
    tops = {name: folders[name] for name in files}
    return {
        "folders": {name: about for name, (about, _) in found.items()},
        "nested": inner,
        "kinds": count(files, inner),
        "devices": devices(tops, files, inner, until, channel.check),
        "users": users(base, folders),
        "launch": _launch(base),
        "seeded": records.read_record(base, SEEDED),
        "seeding": records.read_record(base, records.SEEDING),
        "plan": find_plan(base, dict(params.get("like") or {})),
        "against": {str(name): _against(base, name, files) for name in params.get("against") or []},
        "counted_at": time.time(),
    }


def classify(name: str, path: str, inner: Dict[str, str]) -> Tuple[str, str | None]:
    """(kind, the entry that the file belongs to or None) of a file of the cache `name`.

    Kinds: fxgraph, aotautograd, triton, cubin (a kernel's machine code), extensions, code (what Inductor generated and
    built), lock, other. inner: cache -> where it lies within another, as cache_folders.nested tells.
    """
    for other, place in inner.items():
        if (name + "/" + path).startswith(place + "/"):
            return classify(other, (name + "/" + path)[len(place) + 1 :], {})
    parts = path.split("/")
    if LOCKS.search(path):
        return "lock", None
    if name == "inductor":
        if parts[0] in ("fxgraph", "aotautograd") and len(parts) > 2:
            depth = 3 if len(parts[1]) == 2 and len(parts) > 3 else 2
            return parts[0], "/".join(parts[:depth])
        if parts[0] == "triton" and len(parts) > 2:
            return _kernel(parts, 3 if parts[1].isdigit() else 2)
        return ("code", None) if len(parts) == 2 and len(parts[0]) == 2 else ("other", None)
    if name == "triton":
        return _kernel(parts, 1) if len(parts) > 1 else ("other", None)
    if name == "extensions" and len(parts) > 1:
        return "extensions", os.path.dirname(path)
    return "other", None


def _kernel(parts: List[str], depth: int) -> Tuple[str, str | None]:
    if parts[-1].endswith((".cubin", ".hsaco")):
        return "cubin", "/".join(parts)
    return "triton", "/".join(parts[:depth])


def count(files: Dict[str, List[File]], inner: Dict[str, str]) -> Dict[str, Record]:
    """Kind -> {entries, files, bytes}; entries None for kinds that have none."""
    kinds: Dict[str, Record] = {}
    entries: Dict[str, Set[str]] = {}
    for name, listed in files.items():
        for file in listed:
            kind, entry = classify(name, file.path, inner)
            about = kinds.setdefault(kind, {"entries": None, "files": 0, "bytes": 0})
            about["files"] += 1
            about["bytes"] += file.size
            if entry is not None:
                entries.setdefault(kind, set()).add(name + "/" + entry)
    for kind, seen in entries.items():
        kinds[kind]["entries"] = len(seen)
    return kinds


def devices(
    tops: Dict[str, str], files: Dict[str, List[File]], inner: Dict[str, str], until: float, check: Callable[[], None]
) -> Record:
    """{"graphs": {"cuda:0": graphs, "cpu": graphs}, "unknown": graphs whose code names none, "complete"}.

    tops: where each cache lies. A graph's key holds the device's index, so that of cuda:0 serves no other."""
    told: Dict[str, Set[str]] = {}
    graphs: Set[str] = set()
    wanted: List[Tuple[str, str]] = []
    complete = True
    for name, listed in files.items():
        for file in listed:
            kind, entry = classify(name, file.path, inner)
            if kind != "fxgraph" or entry is None:
                continue
            graphs.add(name + "/" + entry)
            wanted.append((name + "/" + entry, os.path.join(tops[name], file.path)))

    def look(graph: Tuple[str, str]) -> List[str] | None:
        check()
        return graph_devices(graph[1]) if time.monotonic() < until else None

    for (graph, _), found in zip(wanted, each(look, wanted)):  # noqa: B905 (Python 3.8)
        complete = complete and found is not None
        for device in found or ():
            told.setdefault(device, set()).add(graph)
    known = {entry for entries in told.values() for entry in entries}
    graphs_on = {device: len(entries) for device, entries in sorted(told.items())}
    return {"graphs": graphs_on, "unknown": len(graphs - known), "complete": complete}


def graph_devices(path: str) -> List[str]:
    """`cuda:0`, or `cpu`; none when the entry does not say, or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Not more than there is: room for 8 MB at each of thousands of small files costs more than reading them.
            data = os.read(handle, min(os.fstat(handle).st_size, MAX_GRAPH_BYTES))
        finally:
            os.close(handle)
    except OSError:
        return []
    # Plain text first: a pattern is searched at a tenth of the speed, and much of a cache is neither.
    found = sorted({int(number) for number in GUARD.findall(data)}) if b"_DeviceGuard(" in data else []
    if not found and (b"cpp_fused" in data or (b"async_compile.cpp" in data and CPU.search(data))):
        return ["cpu"]
    return ["cuda:%d" % number for number in found]


def snapshot_devices(folder: str, files: Files, inner: Dict[str, str], check: Callable[[], None]) -> Record:
    """As `devices`, of a snapshot's folder."""
    tops = {kind: os.path.join(folder, kind) for kind in files}
    return devices(tops, described(files), inner, time.monotonic() + DEVICES_S, check)


def users(base: str, folders: Dict[str, str]) -> Record:
    """{"live_run": its id or None, "live_uses": whether it was told these folders (None: not known),
    "processes": [as process.describe, of every process whose environment names one of them]}"""
    live_run, uses = None, None
    if live.is_held(base):
        live_run = str((live.read_content(base) or {}).get("run_id") or "unknown")
        if records.is_run_id(live_run):
            spec = records.read_record(records.run_folder(base, live_run), contract.RUN_SPEC) or {}
            told = set((spec.get("environment") or {}).values())
            uses = bool(told & set(folders.values())) if told else None
    seen: Dict[int, Record] = {}
    for name, path in folders.items():
        for stat, value in process.values_of(VARIABLES.get(name, name)):
            if os.path.normpath(value) == path:
                seen.setdefault(stat.pid, process.describe(stat))
    return {"live_run": live_run, "live_uses": uses, "processes": [seen[pid] for pid in sorted(seen)]}


def _launch(base: str) -> Record | None:
    """{"run_id", "cache"}: how large the caches were when the live or newest run was launched."""
    run_id = records.latest_run(base, live.facts(base))
    if run_id is None:
        return None
    told = records.read_record(records.run_folder(base, run_id), contract.FINGERPRINT) or {}
    observed = told.get("observed")
    return {"run_id": run_id, "cache": observed.get("cache") if isinstance(observed, dict) else None}


def _against(base: str, name: Any, files: Dict[str, List[File]]) -> Record:
    """By name and size; contents are not read."""
    try:
        folder = snapshot_folder(base, name)
        kept, inner = read_files(folder), records.read_record(folder, "manifest.json") or {}
    except OpError as error:
        return {"error": str(error)}
    here = {kind + "/" + file.path: file.size for kind, listed in files.items() for file in listed}
    there = {kind + "/" + file.path: file.size for kind, listed in described(kept).items() for file in listed}
    both = here.keys() & there.keys()
    same = sum(1 for path in both if here[path] == there[path])
    return {
        "kinds": count(described(kept), dict(inner.get("nested") or {})),
        "bytes": sum(there.values()),
        "files": len(there),
        "same": same,
        "changed": len(both) - same,
        "gone": len(there) - len(both),
        "new": len(here) - len(both),
    }


def described(kept: Files) -> Dict[str, List[File]]:
    """What a snapshot's files.json lists, as if it had been walked."""
    return {
        kind: [File(entry.path, entry.size, 0.0) for entry in entries if entry.kind == FILE]
        for kind, entries in kept.items()
    }


class _Walk:
    def __init__(self, max_files: int, until: float, check: Callable[[], None]) -> None:
        self._left = max_files
        self._until = until
        self._check = check

    def folder(self, path: str) -> Tuple[Record, List[File]]:
        about: Record = {"path": path, "exists": os.path.isdir(path), "complete": True, "unreadable": 0}
        about.update(bytes=None, files=None, oldest_mtime=None, newest_mtime=None)
        if not about["exists"]:
            return about, []
        files = list(self._take(self._files(path, about), about))
        about.update(bytes=sum(file.size for file in files), files=len(files))
        if files:
            times = [file.mtime for file in files]
            about.update(oldest_mtime=min(times), newest_mtime=max(times))
        return about, files

    def _take(self, files: Iterable[File], about: Record) -> Iterator[File]:
        for file in files:
            if self._left <= 0:
                about["complete"] = False
                return
            yield file
            self._left -= 1
            if self._left % cache.CHECK_EVERY == 0:
                self._check()
                if time.monotonic() > self._until:
                    self._left = 0

    def _files(self, top: str, about: Record) -> Iterator[File]:
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            try:
                with os.scandir(os.path.join(top, prefix)) as entries:
                    for entry in entries:
                        try:
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(prefix + entry.name + "/")
                            elif entry.is_file(follow_symlinks=False):
                                seen = entry.stat(follow_symlinks=False)
                                yield File(prefix + entry.name, seen.st_size, seen.st_mtime)
                        except OSError:
                            continue  # a training that compiles removes its temporary files
            except FileNotFoundError:
                continue
            except OSError:
                about["unreadable"] += 1

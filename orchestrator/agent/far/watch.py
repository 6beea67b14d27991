"""Op watch: what run_facts tells, pushed again and again, at next to no cost while nothing changes.

Rule: a look starts no process and reads no file whose stamp is the same; what takes longer (counting the cache,
asking tmux) has intervals of its own and is done beside the looks. A frame tells what changed since the one before.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from . import cache, journal, live, observe, process, records, session
from .cgroup import container_facts
from .gpus import Gpus
from .identity import boot_id, start_ticks
from .past import last_failure
from .records import Record, contract

SURROUNDINGS_S = 5.0
"""Memory, disk, OOM kills, whether tmux takes connections."""
STRAYS_S = 10.0
TMUX_S = 60.0
"""Whether the session's server is there is seen without tmux; tmux itself is asked when that changes, and so rarely."""
CACHE_S = 30.0
CACHE_REST = 50
"""Counting takes at most one part in so many of the time."""
PATIENCE_S = 0.3
"""So long tmux and the counting are waited for; a slower answer is in a later frame."""


def watch(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, run_id (None: whichever run is live or newest, also one that is started later), interval_s,
    log_tail_bytes, gpu (that of Gpus) or None, cache_folders {name: path}. Ends only when cancelled.

    Events {"all": facts} once, then {"changed": facts of the top level, "run": those of the same run}, both with
    "log" {"at": offset, "anew": whether what came before is void} and, as the body, what was added to the run's log.
    """
    interval_s = max(0.05, float(params.get("interval_s") or 1.0))
    gpus = Gpus(params["gpu"]) if params.get("gpu") else None
    watcher = Watcher(params, gpus)
    if gpus:
        gpus.start()
    try:
        told: Record | None = None
        due = time.monotonic()
        while True:
            channel.check()
            facts = watcher.look()
            log, added = watcher.log.grown()
            channel.emit(dict(difference(told, facts), log=log), added)
            told = facts
            due = max(due + interval_s, time.monotonic())
            channel.cancelled.wait(due - time.monotonic())
    finally:
        if gpus:
            gpus.stop()


def difference(told: Record | None, facts: Record) -> Record:
    if told is None:
        return {"all": facts}
    changed = {name: value for name, value in facts.items() if value != told[name]}
    run, before = changed.get("run"), told["run"]
    if run is None or before is None or run["id"] != before["id"]:
        return {"changed": changed}
    del changed["run"]
    return {"changed": changed, "run": {name: value for name, value in run.items() if value != before[name]}}


class Watcher:
    """Facts of the same shape as those of run_facts."""

    def __init__(self, params: Record, gpus: Gpus | None) -> None:
        """params: those of the op."""
        self._base = base = records.base_folder(params)
        self._wanted: str | None = params.get("run_id")
        self._gpus = gpus
        self._files = Files()
        self._newest = _Newest(base)
        self._checkpoints = _Checkpoints()
        self._session = _Session(base)
        self._surroundings = Rarely(SURROUNDINGS_S, self._look_around)
        self._strays = Rarely(STRAYS_S, observe.strays)
        self._failure = Rarely(STRAYS_S, last_failure)
        self._cache = _Cache(params.get("cache_folders") or {})
        self.log = _Log(int(params.get("log_tail_bytes") or 0))

    def look(self) -> Record:
        unfinished = journal.unfinished(self._base)
        live_facts = live.facts(self._base)
        run_id = self._wanted or self._newest.run(live_facts)
        # From here on the order matters: a run's end is recorded before the lock is freed.
        run = None if run_id is None else self._run(run_id, live_facts)
        self.log.follow(None if run is None else os.path.join(run["folder"], contract.RUN_LOG))
        held = (live_facts["content"] or {}).get("run_id") if live_facts["held"] else None
        runs = self._newest.ids[-observe.MAX_LISTED :]
        facts = {
            "now": time.time(),
            "boot_id": boot_id(),
            "init_start_ticks": start_ticks(1),
            "live": live_facts,
            "run": run,
            "session": self._session.look(((run or {}).get("spec") or {}).get("session")),
            "release": observe.release(self._base),
            "runs": runs,
            "unfinished": unfinished[-1] if unfinished else None,
            "cache": self._cache.look(((run or {}).get("spec") or {}).get("created_at")),
            "failure": self._failure.ask((len(runs), run_id, held), self._base, runs, [held]),
        }
        around = dict(self._surroundings.ask(None))
        if run is not None:
            run.update(log=self.log.facts(), oom_kills=around["oom_kills"])
        del around["oom_kills"]
        facts.update(around)
        if self._gpus is not None:
            facts["gpu"], facts["gpu_age_s"] = self._gpus.word()
        return facts

    def _run(self, run_id: str, live_facts: Record) -> Record:
        run = observe.recorded_run(self._base, run_id, live_facts, self._files.read)
        run["checkpoints"] = self._checkpoints.look(run["folder"])
        # While the training lives, nothing of it is a stray.
        alive = run["training_alive"]
        run["strays"] = [] if alive else self._strays.ask((run_id, live_facts["held"]), run)
        run["stopped"] = observe.stopped(run, run["strays"])
        return run

    def _look_around(self) -> Record:
        return {
            "booted_at": process.booted_at(),
            "disk_free_bytes": observe.disk_free_bytes(self._base),
            "container": container_facts(),
            "oom_kills": process.oom_kills(),
        }


class Rarely:
    """The last answer of a function that is called once in `interval_s`, or when what it is about has changed."""

    def __init__(self, interval_s: float, function: Callable[..., Any], clock: Callable[[], float] = time.monotonic):
        self._interval_s = interval_s
        self._function = function
        self._clock = clock
        self._due = float("-inf")
        self._about: Any = None
        self._answer: Any = None

    def ask(self, about: Any, *arguments: Any) -> Any:
        now = self._clock()
        if now >= self._due or about != self._about:
            self._answer = self._function(*arguments)
            self._about, self._due = about, now + self._interval_s
        return self._answer


class Files:
    """Records, each read again only when its file is another one or was written to."""

    def __init__(self) -> None:
        self._kept: Dict[str, Tuple[Any, Record | None]] = {}

    def read(self, folder: str, name: str) -> Record | None:
        path = os.path.join(folder, name)
        stamp = observe.file_stamp(path)
        kept = self._kept.get(path)
        if kept is None or kept[0] != stamp:
            kept = self._kept[path] = (stamp, records.read_record(folder, name))
        return kept[1]


class _Newest:
    """Which run is the live or the newest one."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._stamp: Any = None
        self._live: Any = None
        self._found: str | None = None
        self.ids: List[str] = []

    def run(self, live_facts: Record) -> str | None:
        stamp = observe.file_stamp(os.path.join(self._base, records.RUNS))
        held = (live_facts["held"], (live_facts["content"] or {}).get("run_id"))
        # A folder is there before the record in it, which makes it a run.
        settled = not self.ids or self._found == self.ids[-1]
        if stamp != self._stamp or held != self._live or not settled:
            self.ids = records.run_ids(self._base)
            self._found = records.latest_run(self._base, live_facts)
            self._stamp, self._live = stamp, held
        return self._found


class _Checkpoints:
    def __init__(self) -> None:
        self._stamp: Any = None
        self._found: List[Dict[str, Any]] = []

    def look(self, folder: str) -> List[Dict[str, Any]]:
        stamp = (folder, observe.file_stamp(os.path.join(folder, contract.CHECKPOINTS)))
        # A marker that completes one changes its own folder only.
        if stamp != self._stamp or not all(entry["complete"] for entry in self._found):
            self._stamp, self._found = stamp, observe.checkpoints(folder)
        return self._found


class _Log:
    """The end of a run's log: at first as much as is wanted, then what was added, never more at once than that."""

    def __init__(self, tail_bytes: int) -> None:
        self._tail_bytes = tail_bytes
        self._path: str | None = None
        self._inode: int | None = None
        self._told = 0
        self._anew = True
        self._stat: os.stat_result | None = None

    def follow(self, path: str | None) -> None:
        if path != self._path:
            self._path, self._inode, self._told, self._anew = path, None, 0, True
        try:
            self._stat = None if path is None else os.stat(path)
        except OSError:
            self._stat = None
        if self._stat is not None and (self._stat.st_ino != self._inode or self._stat.st_size < self._told):
            self._inode, self._told, self._anew = self._stat.st_ino, 0, True

    def facts(self) -> Record | None:
        return None if self._stat is None else {"size": self._stat.st_size, "mtime": self._stat.st_mtime}

    def grown(self) -> Tuple[Record, bytes]:
        """({"at", "anew"}, the bytes)."""
        size = 0 if self._stat is None else self._stat.st_size
        anew, self._anew = self._anew, False
        begin = self._told
        if size - begin > self._tail_bytes:
            begin, anew = size - self._tail_bytes, True
        added = b""
        if size > begin and self._path is not None:
            try:
                with open(self._path, "rb") as stream:
                    stream.seek(begin)
                    added = stream.read(size - begin)
            except OSError:
                added = b""
        self._told = begin + len(added)
        return {"at": begin, "anew": anew}, added


class _Cache:
    """Counted beside the looks, again after a while that is long beside what counting took."""

    def __init__(self, folders: Dict[str, str]) -> None:
        self._folders = folders
        self._stats: Record | None = None
        self._due = float("-inf")
        self._counting: threading.Thread | None = None

    def look(self, since: float | None) -> Record | None:
        """since: when the run that is shown was launched."""
        if self._folders and time.monotonic() >= self._due and not _is_at_work(self._counting):
            self._counting = threading.Thread(target=self._count, args=(since,), name="cache", daemon=True)
            self._counting.start()
            self._counting.join(PATIENCE_S)
        return self._stats

    def _count(self, since: float | None) -> None:
        began = time.monotonic()
        self._due = began + CACHE_S  # also when it fails
        self._stats = {"folders": cache.measure(self._folders, since=since), "counted_at": time.time()}
        self._due = began + max(CACHE_S, CACHE_REST * (time.monotonic() - began))


def _is_at_work(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()


class _Session:
    """Whether the tmux session is there."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._reachable = Rarely(SURROUNDINGS_S, self._connects)
        self._asked = Rarely(TMUX_S, self._ask)
        self._seen = session.SessionFacts(None, None, None)
        self._asking: threading.Thread | None = None

    def look(self, wanted: str | None) -> Record:
        if not wanted:
            return observe.session_facts(self._base, None, None)
        is_reachable = self._reachable.ask(wanted)
        self._asked.ask((wanted, is_reachable), wanted, is_reachable)
        return observe.session_facts(self._base, wanted, self._seen)

    def _ask(self, wanted: str, is_reachable: bool) -> None:
        if not is_reachable:
            self._seen = session.SessionFacts(False, None, None)
        elif not _is_at_work(self._asking):
            self._seen = session.SessionFacts(None, None, None)
            self._asking = threading.Thread(target=self._ask_tmux, args=(wanted,), name="tmux", daemon=True)
            self._asking.start()
            self._asking.join(PATIENCE_S)

    def _ask_tmux(self, wanted: str) -> None:
        self._seen = session.look(self._base, wanted)

    def _connects(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(0.2)
            try:
                connection.connect(session.socket_path(self._base))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True  # full, or slow: somebody is there
        return True

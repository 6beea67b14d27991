"""The index of runs on this machine: one SQLite file, what `orch runs` shows of targets that cannot be reached, and
what need not be asked again of those that can.

Rule: the truth is on the targets. An index that cannot be used is done without, and one that is damaged is moved
aside, never deleted; `orch runs` makes it anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ledger.index_rows import READER, parse_summary, summary_line
from orchestrator.ledger.runs import RunSummary

VARIABLE = "XDG_DATA_HOME"
FILE = "orch/runs.sqlite3"
VERSION = 1
BUSY_S = 5.0
"""How long another orch that writes is waited for."""
SEEN_S = 60.0
"""How exactly it is known when a target was last asked."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY, seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    place TEXT NOT NULL, run_id TEXT NOT NULL, stamp TEXT, asked_at REAL NOT NULL, reader INTEGER NOT NULL,
    gone INTEGER NOT NULL DEFAULT 0, summary TEXT NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (place, run_id)
) WITHOUT ROWID;
"""
KEEP = """
INSERT INTO runs (place, run_id, stamp, asked_at, reader, gone, summary, checksum) VALUES (?, ?, ?, ?, ?, 0, ?, ?)
ON CONFLICT (place, run_id) DO UPDATE SET stamp = excluded.stamp, asked_at = excluded.asked_at, gone = 0,
    reader = excluded.reader, summary = excluded.summary, checksum = excluded.checksum
    WHERE excluded.asked_at >= runs.asked_at
"""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class IndexedRun:
    summary: RunSummary
    stamp: str | None
    """Of its folder on the target when it was read. None: it must be asked again."""
    gone: bool
    """It is no longer on the target."""


@dataclass(frozen=True)
class Recalled:
    runs: Mapping[str, IndexedRun]
    """By id, oldest first."""
    seen_at: float | None
    """Unix time, this machine's clock, at which the target was last asked; None: never."""

    @property
    def stamps(self) -> dict[str, str]:
        return {run_id: run.stamp for run_id, run in self.runs.items() if run.stamp is not None and not run.gone}


class Index:
    def __init__(self, path: Path | None = None, *, heal: bool = False) -> None:
        """heal: move a damaged file aside and begin anew; `notes` then says so."""
        self.path = path or default_path()
        self.notes: list[str] = []
        self._heal = heal

    def recall(self, place: str) -> Recalled:
        with self._used("read") as index:
            if index is not None:
                seen = index.execute("SELECT seen_at FROM places WHERE place = ?", (place,)).fetchone()
                rows = index.execute(
                    "SELECT run_id, stamp, reader, gone, summary, checksum FROM runs WHERE place = ? ORDER BY run_id",
                    (place,),
                ).fetchall()
                return Recalled(dict(_whole(rows)), seen[0] if seen else None)
        return Recalled({}, None)

    def keep(
        self,
        place: str,
        asked_at: float,
        runs: Sequence[tuple[RunSummary, str | None]],
        listed: Sequence[str],
        *,
        whole: bool = False,
    ) -> None:
        """asked_at: the target's clock, so that of two that write the newer answer stays; runs: new or changed ones,
        with their stamps; listed: ids of all that the target told of, oldest first: others since the first of these are
        gone, and where these are all that it has (whole), older ones too. They stay in the index."""
        rows = []
        for run, stamp in runs:
            line = summary_line(run)
            rows.append((place, run.run_id, stamp, asked_at, READER, line, _checksum(line)))
        with self._used("written") as index:
            if index is None:
                return
            index.execute("BEGIN IMMEDIATE")
            known = index.execute("SELECT run_id FROM runs WHERE place = ? AND gone = 0", (place,)).fetchall()
            there = set(listed)
            first = listed[0] if listed and not whole else ""
            gone = [(place, row[0], asked_at) for row in known if row[0] >= first and row[0] not in there]
            if not rows and not gone and self._seen_lately(index, place):
                return
            index.executemany(KEEP, rows)
            index.executemany("UPDATE runs SET gone = 1 WHERE place = ? AND run_id = ? AND asked_at <= ?", gone)
            index.execute(
                "INSERT INTO places VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET seen_at = excluded.seen_at",
                (place, time.time()),
            )

    def _seen_lately(self, index: sqlite3.Connection, place: str) -> bool:
        """Writing takes longer than all else where nothing has changed."""
        seen = index.execute("SELECT seen_at FROM places WHERE place = ?", (place,)).fetchone()
        return seen is not None and 0 <= time.time() - seen[0] < SEEN_S

    def check(self) -> None:
        """Reads all of it; moved aside when it is damaged."""
        with self._used("read") as index:
            if index is not None:
                told = index.execute("PRAGMA quick_check(1)").fetchone()
                if told[0] != "ok":
                    raise sqlite3.DatabaseError(f"damaged: {told[0]}")

    @contextmanager
    def _used(self, what: str) -> Iterator[sqlite3.Connection | None]:
        """One transaction. None, or an end of the block before its time, where the index cannot be used."""
        connection: sqlite3.Connection | None
        try:
            connection = self._open()
        except (sqlite3.Error, OSError) as error:
            connection = self._open_anew(error, what)
        if connection is None:
            yield None
            return
        with closing(connection):
            try:
                with connection:
                    yield connection
            except sqlite3.Error as error:
                again = self._open_anew(error, what)
                if again is not None:
                    again.close()

    def _open(self) -> sqlite3.Connection:
        """Raises sqlite3.Error, OSError."""
        folder = self.path.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # For its owner alone, and so is what SQLite writes beside it; a mask would be that of all threads.
        with contextlib.suppress(OSError):  # SQLite says what is wrong with it
            os.close(os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level="IMMEDIATE")
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                raise sqlite3.OperationalError(f"a newer orch made it (version {version})")
            if version < VERSION:
                connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_anew(self, error: Exception, what: str) -> sqlite3.Connection | None:
        if not (self._heal and _is_damaged(error)):
            self.notes.append(f"the index of runs, {self.path}, could not be {what}: {error}; it was done without")
            return None
        try:
            with self._alone():
                # Made anew before anybody else looks whether it is damaged.
                if _is_sound(self.path):
                    return self._open()
                told = f"the index of runs was damaged ({error}) and is kept as {self._move_aside()}"
                self.notes.append(f"{told}; it is made anew from the targets: orch runs --sync all")
                return self._open()
        except (sqlite3.Error, OSError) as again:
            self.notes.append(f"the index of runs, {self.path}, could not be made anew: {again}; it was done without")
            return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Of all that want to move a damaged file aside. Raises OSError."""
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _move_aside(self) -> Path:
        """Where it is now. Raises OSError."""
        stem = f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        names = (self.path.with_name(f"{stem}-{number}" if number else stem) for number in range(1000))
        aside = next(path for path in names if not path.exists())
        # What was being written goes with it: beside another file it would be rolled back into that.
        for ending in ("-journal", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
        self.path.rename(aside)
        return aside


def default_path() -> Path:
    """$XDG_DATA_HOME, or ~/.local/share."""
    given = os.environ.get(VARIABLE, "")
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "share") / FILE


def _whole(rows: Sequence[tuple[str, str | None, int, int, str, str]]) -> Iterator[tuple[str, IndexedRun]]:
    """A row that is not as it was written is none: the target has it."""
    for run_id, stamp, reader, gone, line, checksum in rows:
        if isinstance(line, str) and _checksum(line) == checksum:
            run = parse_summary(line)
            if run is not None:
                yield run_id, IndexedRun(run, stamp if reader == READER else None, bool(gone))


def _checksum(line: str) -> str:
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_damaged(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    missing = isinstance(error, sqlite3.OperationalError) and "no such " in str(error)  # its schema is not ours
    told = str(error).startswith("damaged:")
    return missing or told or (code is not None and code & 0xFF in DAMAGED)


def _is_sound(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=BUSY_S)) as index:
            index.execute("SELECT count(*), max(checksum) FROM runs").fetchone()
            index.execute("SELECT count(*) FROM places").fetchone()
            return bool(index.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error as error:
        return not _is_damaged(error)

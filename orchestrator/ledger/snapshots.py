"""Kept copies of the compile caches, and which of them goes with a good run.

Rule: pure; a snapshot whose manifest cannot be read is never chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.ledger.cache_fit import Maker, parse_makers
from orchestrator.ledger.runs import Good
from orchestrator.probes.cache_census import Devices, parse_devices
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str, as_strs

LAST_GOOD = "last-good"


@dataclass(frozen=True)
class Snapshot:
    name: str
    made_at: float | None
    """Unix time, the target's clock."""
    bytes: int | None
    runs: tuple[str, ...]
    """The runs that used the cache before it became this snapshot."""
    files: int | None = None
    who: str | None = None
    seeded_from: str | None = None
    """The snapshot that the cache had been made from."""
    odd: int = 0
    """Of what lies in it, that which cannot be seeded: links outwards and the like."""
    made_by: tuple[Maker, ...] = ()
    """With what its entries were made, the newest first; empty: not known."""
    devices: Devices | None = None
    moved_from: str | None = None
    """Where it was pulled or pushed from; None: it was made here."""


@dataclass(frozen=True)
class Snapshots:
    kept: tuple[Snapshot, ...]
    """Oldest first."""
    broken: tuple[str, ...]
    """Names whose manifest cannot be read."""
    unfinished: tuple[str, ...]
    """Clears that were cut short: what they hold is the only copy."""
    unsaved: tuple[str, ...]
    """Saves that were cut short: the next save removes what they left."""
    arriving: tuple[str, ...]
    """Pushed or pulled and cut short: the same again goes on with what has come."""
    seeded_from: str | None
    """What the live cache was made from."""
    seeded_at: float | None


@dataclass(frozen=True)
class Seed:
    name: str
    why: str
    run_id: str | None = None
    """For last-good: the run that it goes with."""


def parse_snapshots(answer: Mapping[str, object]) -> Snapshots:
    """`answer` of list_snapshots."""
    kept, broken = [], []
    rows = answer.get("snapshots")
    for raw in map(as_mapping, rows if isinstance(rows, list) else []):
        name, manifest = as_str(raw.get("name")) or "", as_mapping(raw.get("manifest"))
        folders = as_mapping(manifest.get("folders"))
        if not manifest or "broken" in manifest or not folders:
            broken.append(name)
            continue
        sizes = [as_int(as_mapping(folder).get("bytes")) for folder in folders.values()]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        counts = [as_int(as_mapping(folder).get("files")) for folder in folders.values()]
        kept.append(
            Snapshot(
                name,
                as_float(manifest.get("made_at")),
                total,
                as_strs(manifest.get("runs")),
                None if None in counts else sum(count for count in counts if count is not None),
                as_str(manifest.get("who")),
                as_str(as_mapping(manifest.get("seeded")).get("snapshot")),
                len(as_strs(manifest.get("odd"))),
                parse_makers(manifest.get("made_by")),
                parse_devices(manifest.get("devices")),
                as_str(as_mapping(manifest.get("moved")).get("from")),
            )
        )
    seeded = as_mapping(answer.get("seeded"))
    kept.sort(key=lambda one: one.made_at or 0.0)  # a saved one has any name
    return Snapshots(
        tuple(kept),
        tuple(broken),
        as_strs(answer.get("unfinished")),
        as_strs(answer.get("unsaved")),
        as_strs(answer.get("arriving")),
        as_str(seeded.get("snapshot")),
        as_float(seeded.get("at")),
    )


def choose_seed(wanted: str, found: Snapshots, good: Sequence[Good]) -> Seed:
    """wanted: a name, its beginning, or last-good; good: those of ledger.runs.good_runs. Raises UsageError."""
    return _last_good(found, good) if wanted == LAST_GOOD else Seed(choose_snapshot(wanted, found), "named")


def choose_snapshot(wanted: str, found: Snapshots) -> str:
    """wanted: a name, or its unique beginning. Raises UsageError."""
    matches = [snapshot.name for snapshot in found.kept if snapshot.name == wanted] or [
        snapshot.name for snapshot in found.kept if wanted and snapshot.name.startswith(wanted)
    ]
    if len(matches) == 1:
        return matches[0]
    broken = " (its manifest cannot be read)" if wanted in found.broken else ""
    raise UsageError(
        f"{len(matches)} snapshots of the compile cache begin with {wanted!r}{broken}; nothing was done",
        evidence="there are: " + (", ".join(snapshot.name for snapshot in found.kept) or "none"),
        way_out="orch cache list",
    )


def choose_dropped(wanted: str, found: Snapshots) -> str:
    """Only by its whole name: the same command again must not take the next one that begins so. Raises UsageError."""
    there = (*(snapshot.name for snapshot in found.kept), *found.broken, *found.arriving)
    if wanted in there:
        return wanted
    raise UsageError(
        f"there is no snapshot {wanted!r} of the compile cache; nothing was dropped",
        evidence="there are: " + (", ".join(there) or "none"),
        way_out="orch cache list     its whole name is asked for",
    )


def to_drop(found: Snapshots, spared: frozenset[str], *, keep: int | None, max_bytes: int | None) -> tuple[str, ...]:
    """Names, oldest first: of the newest `keep` remain as many as fit into max_bytes together; None: no limit.

    spared: never dropped, and counted first. A snapshot of unknown size is not dropped for its bytes. Bytes are those
    of its files, also where another snapshot shares them."""
    newest = sorted(found.kept, key=lambda one: (one.name in spared, one.made_at or 0.0), reverse=True)
    count, size = 0, 0
    dropped = []
    for snapshot in newest:
        too_many = keep is not None and count >= keep
        too_large = max_bytes is not None and snapshot.bytes is not None and size + snapshot.bytes > max_bytes
        if snapshot.name not in spared and (too_many or too_large):
            dropped.append(snapshot)
            continue
        count += 1
        size += snapshot.bytes or 0
    return tuple(one.name for one in sorted(dropped, key=lambda one: one.made_at or 0.0))


def _last_good(found: Snapshots, good: Sequence[Good]) -> Seed:
    names = {snapshot.name for snapshot in found.kept}
    for one in good:
        which = f"the last good one ({one.why})" if one is good[0] else "the newest good one that has a snapshot"
        for snapshot in found.kept:
            if one.run_id in snapshot.runs:
                return Seed(snapshot.name, f"the cache that run {one.run_id} used, {which}", one.run_id)
        created_at = one.run.created_at
        seeded = found.seeded_at is not None and created_at is not None and found.seeded_at <= created_at
        if seeded and found.seeded_from in names:
            return Seed(str(found.seeded_from), f"run {one.run_id} began from it, {which}", one.run_id)
    raise UsageError(
        "there is no last good snapshot of the compile cache; nothing was done",
        evidence=f"good runs: {len(good)}, kept snapshots: {len(found.kept)}; none goes with such a run",
        way_out="orch cache list              then name one\norch runs mark RUN good      to say which run was",
    )

"""PURE: the compile cache and its snapshots, as lines and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.cache_enough import NOTHING_KNOWN, Enough
from orchestrator.ledger.cache_fit import Fit
from orchestrator.ledger.journal import utc_text
from orchestrator.ledger.snapshots import Snapshot, Snapshots
from orchestrator.probes.cache_census import Against, Census, Devices, graphs_of
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, bytes_text, duration_text, number_text, render_rows

SCHEMA = "orch.cache/1"
SHOWN_USERS = 8


@dataclass(frozen=True)
class LastGood:
    run_id: str | None
    """None: there is no such run; `why` says so."""
    why: str
    bytes: int | None
    """Of the cache that it used, else of what it found when it was launched."""
    snapshot: str | None
    """What keeps that cache."""
    graphs: int | None = None
    """Compiled graphs in the cache when that run ended."""


@dataclass(frozen=True)
class CacheReport:
    target: str
    label: str
    census: Census
    last_good: LastGood
    enough: Enough = NOTHING_KNOWN
    """Beside the plan of a run like the next one, and the last good run."""

    @property
    def of_last_good(self) -> float | None:
        """Live bytes by those of the last good run."""
        return self.census.bytes / self.last_good.bytes if self.last_good.bytes else None


@dataclass(frozen=True)
class SnapshotsReport:
    target: str
    label: str
    snapshots: Snapshots


def render_cache(report: CacheReport) -> str:
    census = report.census
    lines = [f"{report.label}: compile cache", "  " + headline(report)]
    rows = [
        (folder.cache, one_line(folder.path), bytes_text(folder.bytes) if folder.exists else "not there")
        for folder in census.folders
    ]
    rows += [(cache, f"within {place}", "") for cache, place in census.nested.items()]
    lines.append(render_rows(rows, indent="  "))
    if census.kinds:
        table = [("kind", "entries", "files", "size")]
        table += [(row.kind, number_text(row.entries), str(row.files), bytes_text(row.bytes)) for row in census.kinds]
        lines.append(render_rows(table, indent="  "))
    if census.devices is not None and (census.devices.graphs or census.devices.unknown):
        lines.append("  graphs by device: " + devices_text(census.devices))
    if census.newest_at is not None:
        lines.append(f"  written: {_ago(census, census.oldest_at)} to {_ago(census, census.newest_at)}")
    lines += [f"  NOT ENOUGH: {one_line(text)}" for text in report.enough.lacking]
    if report.enough.verdict:
        lines.append(f"  enough, by count, for {'; and for '.join(report.enough.against)}")
    if census.seeding is not None:
        lines.append(
            f"  a seeding from {one_line(census.seeding)} was cut short: the next launch or cache command finishes it"
        )
    lines += _since_launch(census)
    lines += [_against_line(census, row) for row in census.against]
    lines += _last_good_lines(report)
    lines.append("  used now by: " + users_text(census))
    return "\n".join(lines)


def headline(report: CacheReport) -> str:
    """`925 kB, 6 compiled graphs, 12 files: 0.3 % of the last good run's 353 MB`"""
    census = report.census
    least = "" if census.complete else "at least "
    graphs = f"{census.entries} compiled graph{'' if census.entries == 1 else 's'}"
    text = f"{least}{bytes_text(census.bytes)}, {graphs}, {census.files} file{'' if census.files == 1 else 's'}"
    part = report.of_last_good
    if part is None:
        return text
    return f"{text}: {percent_text(part)} of the last good run's {bytes_text(report.last_good.bytes)}"


def percent_text(part: float) -> str:
    return f"{part:.1%}".replace("%", " %") if part < 0.1 else f"{part:.0%}".replace("%", " %")


def devices_text(devices: Devices) -> str:
    found = [f"{device} {number}" for device, number in devices.graphs.items()]
    if devices.unknown:
        found.append(f"not known {devices.unknown}")
    indices = [device for device in devices.graphs if device.startswith("cuda:")]
    text = ", ".join(found) + ("" if devices.complete else " (not all were read)")
    return text + ("; they serve no other device index" if indices else "")


def users_text(census: Census) -> str:
    users = census.users
    found = []
    if users.live_run is not None:
        doubt = {True: "", False: " (which uses other folders)", None: " (its folders are not known)"}
        found.append(f"run {users.live_run}{doubt[users.live_uses]}")
    found += [f"pid {user.pid} {one_line(user.command, 60)}" for user in users.processes[:SHOWN_USERS]]
    if len(users.processes) > SHOWN_USERS:
        found.append(f"{len(users.processes) - SHOWN_USERS} more processes")
    return "; ".join(found) or "nobody that is known"


def cache_record(report: CacheReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    census = asdict(report.census)
    census.update(
        bytes=report.census.bytes,
        files=report.census.files,
        graphs=report.census.entries,
        complete=report.census.complete,
    )
    about = {"target": report.target, "last_good": asdict(report.last_good), "of_last_good": report.of_last_good}
    about["enough"] = asdict(report.enough)
    return {"schema": SCHEMA, "what": "show", **plain_values({**about, "cache": census})}


def render_snapshots(report: SnapshotsReport) -> str:
    found = report.snapshots
    lines = [f"{report.label}: snapshots of the compile cache"]
    rows = [_row(snapshot, found) for snapshot in found.kept]
    rows += [(name, "DAMAGED: its manifest cannot be read", "", "", "", "") for name in found.broken]
    rows += [(name, "incomplete: a clear that was cut short", "", "", "", "") for name in found.unfinished]
    rows += [(name, "incomplete: a save that was cut short", "", "", "", "") for name in found.unsaved]
    rows += [(name, "incomplete: a push or pull that was cut short", "", "", "", "") for name in found.arriving]
    if not rows:
        return lines[0] + "\n  none"
    header = ("snapshot", "state", "size", "files", "made", "of runs")
    lines.append(render_rows([header, *rows], indent="  "))
    if found.unfinished:
        lines.append("  the next clear finishes what was cut short; nothing of it is lost")
    if found.arriving:
        lines.append("  the same push or pull again sends only the rest; `orch cache drop NAME` removes what has come")
    return "\n".join(lines)


def snapshots_record(report: SnapshotsReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    return {"schema": SCHEMA, "what": "list", "target": report.target, **plain_values(asdict(report.snapshots))}


@dataclass(frozen=True)
class SavedReport:
    target: str
    label: str
    snapshot: str
    bytes: int
    files: int
    linked: int
    """Of them those that an older snapshot held already."""
    odd: tuple[str, ...]
    """What could not be described, and is not in it."""


def render_saved(report: SavedReport) -> str:
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    lines = [f"{report.target}: saved {bytes_text(report.bytes)}, {files} as snapshot {report.snapshot}"]
    if report.linked:
        lines.append(f"  {report.linked} of them are stored once, with the snapshots that held them already")
    if report.odd:
        lines.append(f"  {len(report.odd)} left out (links outwards and the like): {one_line(report.odd[0])}")
    return "\n".join(lines)


@dataclass(frozen=True)
class MovedReport:
    source: str
    target: str
    """Both are targets' names, or `this machine`."""
    snapshot: str
    """Its name where it is now."""
    bytes: int
    files: int
    contents_sent: int
    """Different contents, not names: what the target had of no snapshot."""
    bytes_sent: int
    """Over the link into the target: packed contents and the list of files; 0 when it was there already."""
    linked: int
    """Files that a kept snapshot held too, and that are stored once."""
    already_there: bool


def render_moved(report: MovedReport) -> str:
    size = f"{bytes_text(report.bytes)}, {report.files} file{'' if report.files == 1 else 's'}"
    if report.already_there:
        return f"{report.target}: snapshot {report.snapshot} ({size}) is there already; nothing was sent"
    sent = f"sent {report.contents_sent} contents, {bytes_text(report.bytes_sent)}"
    lines = [f"{report.target}: snapshot {report.snapshot} from {report.source}: {size}, each compared; {sent}"]
    if report.linked:
        lines.append(f"  {report.linked} files are stored once, with the snapshots that held them already")
    return "\n".join(lines)


@dataclass(frozen=True)
class VerifyReport:
    target: str
    label: str
    damaged: dict[str, tuple[str, ...]]
    """Snapshot -> what in it is not as described; none: whole."""
    broken: tuple[str, ...]
    """Snapshots whose description cannot be read."""
    incomplete: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not self.broken and not any(self.damaged.values())


def render_verified(report: VerifyReport) -> str:
    lines = [f"{report.label}: every file of each snapshot read and compared"]
    rows = [
        (name, "whole" if not wrong else f"DAMAGED: {len(wrong)} files, first {one_line(wrong[0])}")
        for name, wrong in report.damaged.items()
    ]
    rows += [(name, "DAMAGED: its description cannot be read") for name in report.broken]
    rows += [(name, "incomplete, and not read") for name in report.incomplete]
    return "\n".join([*lines, render_rows(rows, indent="  ") if rows else "  there are none"])


@dataclass(frozen=True)
class ClearedReport:
    target: str
    label: str
    snapshot: str | None
    """None: there was nothing."""
    bytes: int
    files: int
    finished: tuple[str, ...]
    """Snapshots of earlier clears that had been cut short."""
    odd: tuple[str, ...]
    kept_aside: tuple[str, ...]
    """Folders that could not go into the snapshot and lie beside their old place."""


def render_cleared(report: ClearedReport) -> str:
    lines = [f"{report.target}: finished a clear that was cut short, kept as {name}" for name in report.finished]
    if report.snapshot is None:
        return "\n".join([*lines, f"{report.target}: the cache was empty"])
    about = f"{bytes_text(report.bytes)}, {report.files} files"
    lines.append(f"{report.target}: the cache is empty; {about} are kept as snapshot {report.snapshot}")
    if report.odd:
        lines.append(
            f"  {len(report.odd)} of it cannot be seeded (links outwards and the like): {one_line(report.odd[0])}"
        )
    return "\n".join([*lines, *(f"  kept at {one_line(path)}" for path in report.kept_aside)])


@dataclass(frozen=True)
class SeededReport:
    target: str
    label: str
    snapshot: str
    why: str
    bytes: int | None
    """None, as `files`: nothing was copied, because the cache was made from it before."""
    files: int | None
    aside: str | None
    """The snapshot that holds what was there before."""
    fit: Fit


def render_seeded(report: SeededReport, *, brief: bool = False) -> str:
    """brief: within what names the target already."""
    about = f": {bytes_text(report.bytes)}, {report.files} files, each compared" if report.files is not None else ""
    title = "" if brief else f"{report.target}: the "
    lines = [f"{title}cache is made from snapshot {report.snapshot}{about}"]
    if report.why != "named":
        lines.append(f"  {one_line(report.why)}")
    if report.aside is not None:
        lines.append(f"  what was there is kept as snapshot {report.aside}")
    return "\n".join([*lines, *fit_lines(report.fit)])


def fit_lines(fit: Fit) -> list[str]:
    """Indented. None where all that is compared is the same."""
    lines = []
    for title, rows in (("DIFFERS, seeded by force", fit.hard), ("differs, judged by hits", fit.soft)):
        lines += [f"  {title}: {row.field}: {one_line(row.kept)} in it, {one_line(row.now)} now" for row in rows]
    if fit.unknown:
        lines.append("  could not be compared: " + ", ".join(fit.unknown))
    return lines


def done_record(
    what: str, report: SavedReport | VerifyReport | ClearedReport | SeededReport | MovedReport
) -> dict[str, Any]:
    """For --json. what: the verb."""
    return {"schema": SCHEMA, "what": what, **plain_values(asdict(report))}


def _row(snapshot: Snapshot, found: Snapshots) -> tuple[str, ...]:
    state = "complete" + (f", {snapshot.odd} odd files not described" if snapshot.odd else "")
    if snapshot.name == found.seeded_from:
        state += ", the live cache was made from it"
    if snapshot.moved_from is not None:
        state += f", from {one_line(snapshot.moved_from)}"
    runs = ", ".join(snapshot.runs[-2:]) + (f" and {len(snapshot.runs) - 2} more" if len(snapshot.runs) > 2 else "")
    return (
        snapshot.name,
        state,
        bytes_text(snapshot.bytes),
        number_text(snapshot.files),
        utc_text(snapshot.made_at).removesuffix(" UTC") + (f" by {one_line(snapshot.who)}" if snapshot.who else ""),
        one_line(runs) or DASH,
    )


def _ago(census: Census, at: float | None) -> str:
    if at is None or census.counted_at is None:
        return DASH
    return f"{duration_text(max(0.0, census.counted_at - at))} ago"


def _since_launch(census: Census) -> list[str]:
    """What was written since, for the folders that the run found."""
    before, run_id = census.at_launch, census.launched_run
    if before is None or run_id is None:
        return []
    paths = {folder.path for folder in before.folders}
    if before.bytes is None or not {folder.path for folder in census.folders} <= paths:
        return [f"  run {run_id} was launched with other folders, or they were not there"]
    least = "" if before.complete and census.complete else "about "
    grown = census.bytes - before.bytes
    files = "" if before.files is None else f", {census.files - before.files:+d} files"
    sign = "-" if grown < 0 else "+"
    return [f"  since run {run_id} was launched: {least}{sign}{bytes_text(abs(grown))}{files}"]


def _against_line(census: Census, row: Against) -> str:
    seeded = f", from which it was made {_ago(census, census.seeded_at)}" if row.snapshot == census.seeded_from else ""
    title = f"  beside snapshot {row.snapshot}{seeded}"
    if row.error is not None:
        return f"{title}: {one_line(row.error)}"
    graphs = graphs_of(row.kinds)
    held = f"{row.same} of its {row.files} files ({bytes_text(row.bytes)}, {graphs} graphs) are here"
    return f"{title}: {held}; {row.gone} gone, {row.changed} changed, {row.new} new"


def _last_good_lines(report: CacheReport) -> list[str]:
    good = report.last_good
    if good.run_id is None:
        return [f"  last good run: {one_line(good.why)}"]
    kept = f"kept as snapshot {good.snapshot}" if good.snapshot else "no snapshot keeps what it used"
    return [f"  last good run {good.run_id}: {bytes_text(good.bytes)} {one_line(good.why)}; {kept}"]

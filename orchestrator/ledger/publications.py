"""What was published: records of a folder or of an object store, read the same way.

Rule: pure; built from the record that was written beside the files. Unknown is None.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str

KEEP = 5
"""Publications that stay unless somebody says otherwise."""


@dataclass(frozen=True)
class Publication:
    tree_hash: str
    pushed_at_s: float | None
    """Unix time."""
    files: int | None
    size_bytes: int | None
    kind: str | None
    """export, checkpoint"""
    run_id: str | None
    step: int | None
    """None: the finished export."""
    origin: str | None
    """The target that it was trained on."""
    release: str | None
    acceptance_length: float | None
    lossless: bool | None
    published_by: str | None
    result: Mapping[str, object]
    """What came out of the run, as it said. Empty: not known."""


@dataclass(frozen=True)
class Shelved:
    """What there is at one place."""

    where: str
    current: str | None
    previous: str | None
    publications: tuple[Publication, ...]
    """Newest first; whole ones only."""
    unreadable: tuple[str, ...] = ()
    """Tree hashes whose record cannot be read."""

    def find(self, tree_hash: str | None) -> Publication | None:
        return next((one for one in self.publications if one.tree_hash == tree_hash), None)


def parse_publication(record: Mapping[str, object]) -> Publication | None:
    tree_hash = as_str(record.get("tree_hash"))
    if tree_hash is None:
        return None
    said = as_mapping(record.get("provenance"))
    result = as_mapping(said.get("result"))
    acceptance = as_float(result.get("acceptance_length"))
    return Publication(
        tree_hash=tree_hash,
        pushed_at_s=as_float(record.get("pushed_at")),
        files=as_int(record.get("files")),
        size_bytes=as_int(record.get("bytes")),
        kind=as_str(said.get("kind")),
        run_id=as_str(said.get("run_id")),
        step=as_int(said.get("step")),
        origin=as_str(said.get("target")),
        release=as_str(said.get("release")),
        acceptance_length=acceptance if acceptance is not None else as_float(result.get("acceptance")),
        lossless=as_bool(result.get("lossless")),
        published_by=as_str(said.get("published_by")),
        result=result,
    )


def shelved(where: str, records: Sequence[Mapping[str, object]], *, current: object, previous: object) -> Shelved:
    found = [one for record in records if (one := parse_publication(record)) is not None]
    found.sort(key=lambda one: (-(one.pushed_at_s or 0), one.tree_hash))
    return Shelved(where, as_str(current), as_str(previous), tuple(found))


def choose_publication(there: Shelved, wanted: str | None) -> Publication:
    """By hash or its beginning, or by run; None: the one that was current before. Raises UsageError."""
    if wanted is None:
        before = there.find(there.previous) if there.previous != there.current else None
        if before is None:
            raise UsageError(
                f"{there.where} has no publication before this one",
                evidence=_listed(there),
                way_out=f"orch publish --to {shlex.quote(there.where)} --rollback PUBLICATION   for one of these"
                if there.publications
                else f"orch publish --to {shlex.quote(there.where)}",
            )
        return before
    found = [one for one in there.publications if one.tree_hash.startswith(wanted) or one.run_id == wanted]
    if len(found) != 1:
        raise UsageError(
            f"{len(found)} publications of {there.where} are called {wanted!r}; nothing was switched",
            evidence=_listed(there),
            way_out=f"orch publish --to {shlex.quote(there.where)} --list",
        )
    return found[0]


def going(there: Shelved, keep: int) -> tuple[str, ...]:
    """Tree hashes beyond the newest `keep`; never the current one or the one before it."""
    stays = {there.current, there.previous, *(one.tree_hash for one in there.publications[:keep])}
    return tuple(one.tree_hash for one in there.publications if one.tree_hash not in stays)


def _listed(there: Shelved) -> str:
    lines = [f"{one.tree_hash[:12]} {one.run_id or '-'}" for one in there.publications[:10]]
    return "there are: " + ("\n".join(lines) or "none")

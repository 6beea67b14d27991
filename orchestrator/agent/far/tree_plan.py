"""Looks at a store of releases without touching it: what a push would send, and which releases there are."""

from __future__ import annotations

import os
from typing import Any, Dict, Set

from .channel import Channel
from .errors import OpError
from .manifest import FILE, ManifestError, tree_hash, unique_blobs, unpack
from .release_store import is_complete, newest_first, read_record, release_names
from .releases import CURRENT, PREVIOUS, STORE, linked_release


def tree_plan(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """store; body: the packed manifest. Answers {already_there, files_missing, bytes_missing}: different contents.

    Goes by the releases' records: what a cut push left behind, or somebody spoiled, is found by the push itself.
    Raises OpError.
    """
    store = params["store"]
    try:
        entries = unpack(body)
    except ManifestError as error:
        raise OpError("bad_manifest", "the list of files is refused: %s" % error) from error
    if is_complete(os.path.join(store, tree_hash(entries))):
        return {"already_there": True, "files_missing": 0, "bytes_missing": 0}
    known: Set[str | None] = set()
    for name in release_names(store):
        try:
            _, there = read_record(os.path.join(store, name))
        except OpError:
            continue
        known.update(entry.sha256 for entry in there if entry.kind == FILE)
    missing = [size for sha256, size in unique_blobs(entries) if sha256 not in known]
    return {"already_there": False, "files_missing": len(missing), "bytes_missing": sum(missing)}


def list_releases(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base. Answers {releases: tree hashes, newest first, current, previous}."""
    base = params["base"]
    return {
        "releases": newest_first(os.path.join(base, STORE)),
        "current": linked_release(base, CURRENT),
        "previous": linked_release(base, PREVIOUS),
    }

"""Reads a tree: lists it with hashes, sends contents, compares a release with its record. Writes nothing."""

from __future__ import annotations

import os

from .blobs import COPY_BYTES, pack_frames
from .channel import Channel
from .errors import OpError
from .manifest import ManifestError, check_path, json_unpack, pack
from .regular import open_regular
from .release_store import read_record
from .scan import BUILT_IN_EXCLUDES, hash_file, scan_fit, walk

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Iterator, List, Tuple


def tree_scan(params: Dict[str, Any], body: bytes, channel: Channel) -> Tuple[Dict[str, Any], bytes]:
    """path, exclude. Answers {odd: names that cannot be moved} and the packed manifest. Raises OpError."""
    path = params["path"]
    try:
        entries, odd = scan_fit(path, params.get("exclude") or [], check=channel.check)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OpError("missing", "%s: %s" % (error.filename or path, error.strerror)) from error
    except ManifestError as error:
        raise OpError("changed" if "changed" in error.why else "bad_content", str(error)) from error
    except OSError as error:
        raise OpError("io", "%s: %s" % (path, error)) from error
    return {"odd": odd}, pack(entries)


def tree_send(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """path; body: packed [[name, size], ...]. Events: the frames of blobs.pack_frames, with raw_bytes.

    Raises OpError("changed")."""
    try:
        wanted = json_unpack(body)
        for name, _ in wanted:
            check_path(name)
    except (ManifestError, TypeError, ValueError) as error:
        raise OpError("bad_manifest", str(error)) from error
    for header, data, raw_bytes in pack_frames(_pieces(params["path"], wanted)):
        channel.emit(dict(header, raw_bytes=raw_bytes), data)
    return {}


def _pieces(folder: str, wanted: List[Tuple[str, int]]) -> Iterator[bytes]:
    for name, size in wanted:
        try:
            with open_regular(os.path.join(folder, name)) as stream:
                left = size
                while left:
                    data = stream.read(min(left, COPY_BYTES))
                    if not data:
                        raise OpError("changed", "%s became shorter while it was read" % name)
                    left -= len(data)
                    yield data
        except OSError as error:
            raise OpError("changed", "%s: %s" % (name, error.strerror)) from error


def tree_verify(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """path of a release. Answers {changed, missing, extra}: lists of names, all empty if it is as it was pushed.
    Raises OpError."""
    path = params["path"].rstrip("/")
    _, recorded = read_record(path)
    extra: List[str] = []
    try:
        found = {entry.path: entry for entry in walk(path, BUILT_IN_EXCLUDES, odd=extra, check=channel.check)}
    except FileNotFoundError as error:
        raise OpError("missing", "%s is not there" % path) from error
    changed, missing = [], []
    for entry in recorded:
        here = found.pop(entry.path, None)
        if here is None:
            missing.append(entry.path)
        elif here._replace(sha256=entry.sha256) != entry or not _has_content(path, entry.path, entry.sha256, channel):
            changed.append(entry.path)
    return {"changed": changed, "missing": missing, "extra": sorted([*extra, *found])}


def _has_content(folder: str, name: str, sha256: str, channel: Channel) -> bool:
    if not sha256:
        return True
    try:
        return hash_file(os.path.join(folder, name), check=channel.check)[0] == sha256
    except (OSError, ManifestError):
        return False

"""Which data and which base model a run reads: how many files, how many bytes, and a sample of their content.

Rule: a few megabytes are read whatever the size, the same ones each time; what cannot be finished within the time is
unknown, never half an identity.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .regular import open_regular

MAX_FILES = 200_000
SAMPLED_FILES = 64
BLOCK_BYTES = 64 * 1024
CHECK_EVERY = 512

Check = Callable[[], None]


def content_facts(path: Any, variables: Dict[str, Any], check: Check = lambda: None) -> Dict[str, Any] | None:
    """Identity: {files, bytes, sample}; of a name that is no path, {revision} in the hub's cache. None: there is none.

    Raises OSError, ValueError (too many files), and what check raises."""
    if not path:
        return None
    if not os.path.exists(str(path)):
        return {"revision": hub_revision(str(path), variables)} if not os.path.isabs(str(path)) else {"missing": True}
    links: List[str] = []
    files = sorted(_files(str(path), check, links))
    digest = hashlib.sha256()
    for link in sorted(links):
        digest.update(b"%s\n" % os.fsencode(link))
    for name, size, _ in files:
        digest.update(b"%s\0%d\n" % (os.fsencode(name), size))
    for name, size, _ in chosen(files):
        check()
        _sample(os.path.join(str(path), name) if name else str(path), size, digest)
    return {"files": len(files), "bytes": sum(size for _, size, _ in files), "sample": digest.hexdigest()}


def newest_change(path: Any, check: Check = lambda: None) -> float | None:
    """Unix time of the last write to any file. Raises as content_facts."""
    if not path or not os.path.exists(str(path)):
        return None
    return max((mtime for _, _, mtime in _files(str(path), check)), default=None)


def chosen(files: List[Tuple[str, int, float]]) -> List[Tuple[str, int, float]]:
    """All of a few; of many, evenly over their order, with the first and the last."""
    if len(files) <= SAMPLED_FILES:
        return files
    last = len(files) - 1
    return [files[index * last // (SAMPLED_FILES - 1)] for index in range(SAMPLED_FILES)]


def hub_revision(name: str, variables: Dict[str, Any]) -> str | None:
    """The commit that the Hugging Face cache holds as `main` of `owner/name`. None: it is not there."""
    home = str(variables.get("HF_HOME") or os.path.join(str(variables.get("HOME") or "/"), ".cache/huggingface"))
    hub = str(variables.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    if "/.." in "/" + name:
        return None
    try:
        with open(os.path.join(hub, "models--" + name.replace("/", "--"), "refs/main"), encoding="ascii") as stream:
            return stream.read(100).strip() or None
    except (OSError, ValueError):
        return None


def _files(top: str, check: Check, links: List[str] | None = None) -> Iterator[Tuple[str, int, float]]:
    """(name below top, length, mtime); links to files count as the files; others, which are not followed, go to
    `links` as `name -> target`."""
    if not os.path.isdir(top):
        found = os.stat(top)
        yield "", found.st_size, found.st_mtime
        return
    waiting, count = [""], 0
    while waiting:
        prefix = waiting.pop()
        check()
        with os.scandir(os.path.join(top, prefix)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(prefix + entry.name + "/")
                elif entry.is_symlink() and not os.path.isfile(entry.path):  # to a folder, to nothing, to itself
                    if links is not None:
                        links.append("%s -> %s" % (prefix + entry.name, os.readlink(entry.path)))
                elif entry.is_file():
                    count += 1
                    if count > MAX_FILES:
                        raise ValueError("more than %d files" % MAX_FILES)
                    if count % CHECK_EVERY == 0:
                        check()
                    found = entry.stat()
                    yield prefix + entry.name, found.st_size, found.st_mtime


def _sample(path: str, size: int, digest: Any) -> None:
    """Its first, middle and last block; all of a small one."""
    with open_regular(path) as stream:
        if size <= 3 * BLOCK_BYTES:
            offsets, length = [0], size
        else:
            offsets, length = [0, (size - BLOCK_BYTES) // 2, size - BLOCK_BYTES], BLOCK_BYTES
        for offset in offsets:
            digest.update(os.pread(stream.fileno(), length, offset))

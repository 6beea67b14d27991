"""Which shared libraries torch's own need, and where the dynamic linker would find each; nothing is loaded.

Rule: the linker's order: the folders that the library itself names (RPATH), LD_LIBRARY_PATH, RUNPATH, its cache, the
system's folders; and after them, as torch does when it cannot find one, nvidia/*/lib of every site folder.
"""

from __future__ import annotations

import glob
import os
import struct

from .elf import ElfError, read_dynamic

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Set

    Facts = Dict[str, Any]

MAX_LIBRARIES = 600
MAX_CACHE_BYTES = 16 * 1024 * 1024
CACHE = "/etc/ld.so.cache"
MAGIC = b"glibc-ld.so.cache1.1"
SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def torch_libraries(torch: str, site_folders: List[str], library_path: str) -> Facts:
    """torch: its package folder. {libraries: read, needed: {soname: {by: [name], path: found or None}}, broken:
    [{path, why}], shadowing: [{soname, path}] (a copy on LD_LIBRARY_PATH of what torch brings), complete}.

    Followed are torch's libraries and those below a site folder; of the system's it is enough that they are there.
    """
    search = _Search(site_folders, library_path)
    patterns = (os.path.join(glob.escape(torch), "lib", "*.so*"), os.path.join(glob.escape(torch), "_C*.so"))
    waiting = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    own = {os.path.basename(path) for path in waiting}
    needed: Dict[str, Facts] = {}
    broken: List[Facts] = []
    seen: Set[str] = set()
    while waiting and len(seen) < MAX_LIBRARIES:
        path = waiting.pop(0)
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            dynamic = read_dynamic(path)
        except (ElfError, OSError) as error:
            broken.append({"path": path, "why": str(error)[:200]})
            continue
        for soname in dynamic["needed"]:
            entry = needed.setdefault(soname, {"by": [], "path": None})
            entry["by"].append(os.path.basename(path))
            if entry["path"] is None:
                entry["path"] = search.find(soname, path, dynamic)
            if entry["path"] and search.is_of_a_site(entry["path"]):
                waiting.append(entry["path"])
    return {
        "libraries": len(seen),
        "needed": {name: dict(entry, by=entry["by"][:5]) for name, entry in sorted(needed.items()) if name not in own},
        "broken": broken[:50],
        "shadowing": search.shadowing(sorted(needed)),
        "complete": not waiting,
    }


class _Search:
    def __init__(self, site_folders: List[str], library_path: str) -> None:
        self._sites = [folder.rstrip("/") + "/" for folder in site_folders]
        self._library_path = [folder for folder in library_path.split(":") if folder]
        self._cache = read_cache(CACHE)
        machine = os.uname().machine
        self._system = ["/lib/%s-linux-gnu" % machine, "/usr/lib/%s-linux-gnu" % machine, *SYSTEM]
        self._nvidia = [
            folder
            for site in site_folders
            for pattern in ("nvidia/*/lib", "nvidia/*/lib/*-linux-gnu", "nvidia/*/lib64", "*.libs")
            for folder in sorted(glob.glob(os.path.join(glob.escape(site), pattern)))
        ]

    def find(self, soname: str, by: str, dynamic: Facts) -> str | None:
        origin = os.path.dirname(by)
        if "/" in soname:
            return soname if os.path.exists(soname) else None
        # With a RUNPATH an RPATH is not looked at.
        rpath = [] if dynamic["runpath"] else dynamic["rpath"]
        first = [_expand(folder, origin) for folder in rpath]
        then = [_expand(folder, origin) for folder in dynamic["runpath"]]
        for folder in (*first, *self._library_path, *then):
            path = os.path.join(folder, soname)
            if os.path.exists(path):
                return os.path.normpath(path)
        if soname in self._cache and os.path.exists(self._cache[soname]):
            return self._cache[soname]
        for folder in (*self._system, *self._nvidia):
            path = os.path.join(folder, soname)
            if os.path.exists(path):
                return path
        return None

    def is_of_a_site(self, path: str) -> bool:
        return path.startswith(tuple(self._sites))

    def shadowing(self, sonames: List[str]) -> List[Facts]:
        found = []
        for soname in sonames:
            brought = any(os.path.exists(os.path.join(folder, soname)) for folder in self._nvidia)
            for folder in self._library_path if brought else []:
                path = os.path.join(folder, soname)
                if os.path.exists(path) and not self.is_of_a_site(os.path.normpath(path)):
                    found.append({"soname": soname, "path": path})
                    break
        return found[:50]


def read_cache(path: str) -> Dict[str, str]:
    """soname -> path, as ldconfig wrote it; empty when there is none, or of another format."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_CACHE_BYTES)
    except OSError:
        return {}
    start = data.find(MAGIC)
    if start < 0 or len(data) < start + 48:
        return {}
    count = struct.unpack_from("=I", data, start + 20)[0]
    found: Dict[str, str] = {}
    for number in range(min(count, 100_000)):
        place = start + 48 + number * 24
        if place + 24 > len(data):
            break
        key, value = struct.unpack_from("=II", data, place + 4)
        name, where = _text(data, start + key), _text(data, start + value)
        if name and where:
            found.setdefault(name, where)
    return found


def _text(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + 4096)
    return data[offset:end].decode("utf-8", "replace") if 0 <= offset < end else ""


def _expand(folder: str, origin: str) -> str:
    return folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)

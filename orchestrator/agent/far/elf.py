"""Which libraries a shared object asks the dynamic linker for: a reader of the dynamic section of an ELF file.

Rule: bounded: a few small reads at places that the file names, each checked; a file that is no ELF, or is cut, is
ElfError, never anything else. Nothing is loaded or executed.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Tuple

MAX_SEGMENTS = 512
MAX_DYNAMIC_BYTES = 256 * 1024
MAX_NAME = 4096
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29


class ElfError(Exception):
    """Not an ELF file with a dynamic section that can be read."""


def read_dynamic(path: str) -> Dict[str, Any]:
    """{"needed": [soname], "soname": str or None, "rpath": [folder], "runpath": [folder]}. Raises ElfError, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Dict[str, Any]:
    wide, order, segments = _segments(descriptor)
    loads = [segment for segment in segments if segment[0] == PT_LOAD]
    dynamic = [segment for segment in segments if segment[0] == PT_DYNAMIC]
    if not dynamic:
        raise ElfError("no dynamic section")
    _, offset, _, size = dynamic[0]
    data = _at(descriptor, offset, min(size, MAX_DYNAMIC_BYTES))
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    entries: List[Tuple[int, int]] = []
    for place in range(0, len(data) - entry.size + 1, entry.size):
        tag, value = entry.unpack_from(data, place)
        if tag == DT_NULL:
            break
        entries.append((tag, value))
    tables = [value for tag, value in entries if tag == DT_STRTAB]
    if not tables:
        raise ElfError("no table of names")
    names = _offset_of(tables[0], loads)

    def said(wanted: int) -> List[str]:
        return [_name(descriptor, names + value) for tag, value in entries if tag == wanted]

    return {
        "needed": said(DT_NEEDED),
        "soname": next(iter(said(DT_SONAME)), None),
        "rpath": _folders(said(DT_RPATH)),
        "runpath": _folders(said(DT_RUNPATH)),
    }


def _segments(descriptor: int) -> Tuple[bool, str, List[Tuple[int, int, int, int]]]:
    """(64 bit, byte order, [(type, offset, address, size in the file)])."""
    head = _at(descriptor, 0, 64)
    if head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        raise ElfError("no ELF file")
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    start = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
    size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
    if count > MAX_SEGMENTS or size < (56 if wide else 32):
        raise ElfError("its segments cannot be read")
    data = _at(descriptor, start, size * count)
    found = []
    for place in range(0, size * count, size):
        if wide:
            kind, _, offset, address, _, in_file = struct.unpack_from(order + "IIQQQQ", data, place)
        else:
            kind, offset, address, _, in_file = struct.unpack_from(order + "IIIII", data, place)
        found.append((kind, offset, address, in_file))
    return wide, order, found


def _offset_of(address: int, loads: List[Tuple[int, int, int, int]]) -> int:
    for _, offset, start, size in loads:
        if start <= address < start + size:
            return offset + address - start
    raise ElfError("its names are in no segment")


def _name(descriptor: int, offset: int) -> str:
    data = _at(descriptor, offset, MAX_NAME, short=True)
    end = data.find(b"\0")
    if end < 0:
        raise ElfError("a name without an end")
    return data[:end].decode("utf-8", "replace")


def _folders(paths: List[str]) -> List[str]:
    return [folder for path in paths for folder in path.split(":") if folder]


def _at(descriptor: int, offset: int, size: int, short: bool = False) -> bytes:
    try:
        data = os.pread(descriptor, size, offset)
    except (OSError, OverflowError, ValueError) as error:
        raise ElfError("cannot be read: %s" % error) from error
    if len(data) < size and not short:
        raise ElfError("cut short")
    return data

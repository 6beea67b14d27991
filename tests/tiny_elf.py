"""Shared objects of a few hundred bytes: a header, one segment, a dynamic section. Enough for the dynamic linker to go
looking for what they need, and to say what it does not find."""

from __future__ import annotations

import struct
from collections.abc import Sequence

PAGE = 0x1000
NULL, NEEDED, HASH, STRTAB, SYMTAB, STRSZ, SYMENT, SONAME, RPATH, RUNPATH = 0, 1, 4, 5, 6, 10, 11, 14, 15, 29


def shared_object(
    needed: Sequence[str] = (),
    *,
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    wide: bool = True,
    big_endian: bool = False,
    machine: int = 62,
) -> bytes:
    """machine: 62 is x86-64, 183 AArch64. Its one segment is the whole file, at address 0."""
    order = ">" if big_endian else "<"
    names = b"\0"

    def keep(text: str) -> int:
        nonlocal names
        place = len(names)
        names += text.encode() + b"\0"
        return place

    entries = [(NEEDED, keep(name)) for name in needed]
    entries += [(tag, keep(text)) for tag, text in ((SONAME, soname), (RPATH, rpath), (RUNPATH, runpath)) if text]
    header, segment, symbol, entry = (64, 56, 24, 16) if wide else (52, 32, 16, 8)
    symtab = header + 2 * segment
    hashes = symtab + symbol
    dynamic = hashes + 20 + (-(hashes + 20) % 8)
    strtab = dynamic + entry * (len(entries) + 6)
    entries += [(HASH, hashes), (STRTAB, strtab), (SYMTAB, symtab), (STRSZ, len(names)), (SYMENT, symbol), (NULL, 0)]
    size = strtab + len(names)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if big_endian else 1, 1]) + bytes(9)
    word = "Q" if wide else "I"
    data = ident + struct.pack(
        f"{order}HHI3{word}IHHHHHH", 3, machine, 1, 0, header, 0, 0, header, segment, 2, 64 if wide else 40, 0, 0
    )
    for kind, offset, length in ((1, 0, size), (2, dynamic, entry * len(entries))):
        align = PAGE if kind == 1 else 8
        if wide:
            data += struct.pack(f"{order}IIQQQQQQ", kind, 6, offset, offset, offset, length, length, align)
        else:
            data += struct.pack(f"{order}IIIIIIII", kind, offset, offset, offset, length, length, 6, align)
    data += bytes(symbol) + struct.pack(f"{order}5I", 1, 1, 0, 0, 0)
    data += bytes(dynamic - len(data))
    data += b"".join(struct.pack(f"{order}2{word}", tag, value) for tag, value in entries)
    return data + names

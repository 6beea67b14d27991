"""Which NVIDIA driver the kernel runs, by the driver's own file."""

from __future__ import annotations

import os
import re

FILE = "proc/driver/nvidia/version"


def driver_text(root: str = "/") -> str | None:
    """The first line. None: there is no NVIDIA driver, or it is not seen here. Raises OSError."""
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.readline(4096).rstrip("\n")


def driver_version(root: str = "/") -> str | None:
    """None: it is not known."""
    try:
        return parse_driver(driver_text(root) or "")
    except OSError:
        return None


def parse_driver(text: str) -> str | None:
    """`NVRM version: NVIDIA UNIX [Open] x86_64 Kernel Module [for x86_64]  580.65.06  ...`"""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None

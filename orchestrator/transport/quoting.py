"""The one place where an argv becomes a shell string."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def shell_command(argv: Sequence[str]) -> str:
    """Quote argv for a POSIX shell. Raises ValueError for what no argv can hold (NUL, nothing at all)."""
    if not argv:
        raise ValueError("an argv needs at least one word")
    for word in argv:
        if "\0" in word:
            raise ValueError("a NUL byte cannot be part of an argument")
    return shlex.join(argv)

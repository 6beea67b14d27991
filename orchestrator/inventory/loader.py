"""Finds and reads the inventory file.

Rule: only this module and `cache` touch the file system; what the text means is decided in `read`.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import InventoryError
from orchestrator.inventory import cache
from orchestrator.inventory.model import Inventory

FILE_NAME = "inventory.yaml"
VARIABLE = "ORCH_INVENTORY"
MAX_BYTES = 256 * 1024
INVENTORY = "inventory"


def load_inventory(path: Path | None = None) -> Inventory:
    """path None: $ORCH_INVENTORY, else inventory.yaml here or in a parent folder, up to the git repository's top.

    Raises InventoryError, which names every mistake and its line, or where it looked.
    """
    found = _named(path) or _nearest(Path.cwd())
    text, home = read_text(found, INVENTORY), Path.home()
    known = cache.recall(text, found, home)
    if known is not None:
        return known
    from orchestrator.inventory.read import read_inventory  # pydantic and YAML: a quarter of a second

    inventory = read_inventory(text, found, home)
    cache.keep(inventory, text, found, home)
    return inventory


def _named(path: Path | None) -> Path | None:
    if path is None:
        variable = os.environ.get(VARIABLE)
        if not variable:
            return None
        path = Path(variable)
    return Path(os.path.normpath(Path.cwd() / path.expanduser()))


def _nearest(start: Path) -> Path:
    looked = []
    for folder in (start, *start.parents):
        candidate = folder / FILE_NAME
        if candidate.is_file():
            return candidate
        looked.append(str(candidate))
        if (folder / ".git").exists():
            break
    raise InventoryError(
        f"no {FILE_NAME} was found",
        evidence="looked at:\n" + "\n".join(looked),
        way_out=f"go to the project's folder, use `--inventory FILE`, or set {VARIABLE}",
    )


def read_text(path: Path, kind: str) -> str:
    """Of a file that a person writes. kind: `inventory`, for messages. Raises InventoryError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InventoryError(
            f"{path} cannot be read: {error.strerror}",
            way_out=f"check `--inventory` and {VARIABLE}" if kind == INVENTORY else f"name the {kind}'s file",
        ) from error
    if len(data) > MAX_BYTES:
        raise InventoryError(
            f"{path} is larger than {MAX_BYTES // 1024} KiB, and so cannot be the {kind}",
            way_out=f"name the {kind}'s file",
        )
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise InventoryError(
            f"{path}:1:1: a byte order mark stands before the first word", way_out="save it as plain UTF-8"
        )
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InventoryError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8", way_out="save it as UTF-8"
        ) from error

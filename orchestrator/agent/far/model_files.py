"""Is a folder with a model whole? Only what the files say of themselves is read, not their weights.

Rule: never an error for what a file holds; each doubt is a sentence.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile

from .errors import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List

MAX_HEADER_BYTES = 100 * 1024 * 1024
"""What the safetensors library itself accepts."""
MAX_JSON_BYTES = 16 * 1024 * 1024
WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".gguf")


def model_check(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """path of a folder. {files, bytes, problems: sentences}. Raises OpError("missing")."""
    top = params["path"]
    if not os.path.isdir(top):
        raise OpError("missing", "there is no folder %s" % top)
    problems: List[str] = []
    files = size = weights = 0
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            channel.check()
            path = os.path.join(folder, name)
            short = os.path.relpath(path, top)
            files += 1
            try:
                held = os.path.getsize(path)
                size += held
                why = _doubt(path, held)
            except OSError as error:
                why = error.strerror or str(error)
            if name.endswith(WEIGHTS):
                weights += 1
            if why:
                problems.append("%s: %s" % (short, why))
    if not weights:
        problems.append("no file with weights (%s)" % ", ".join(WEIGHTS))
    return {"files": files, "bytes": size, "problems": problems}


def _doubt(path: str, size: int) -> str | None:
    if path.endswith(".safetensors"):
        return _safetensors(path, size)
    if path.endswith((".pt", ".pth", ".npz")):
        return None if zipfile.is_zipfile(path) else "cut short, or no file of torch.save"
    if path.endswith(WEIGHTS):
        return None if size else "empty"
    if path.endswith(".json") and size <= MAX_JSON_BYTES:
        with open(path, "rb") as stream:
            try:
                told = json.loads(stream.read().decode("utf-8"))
            except (ValueError, RecursionError):
                return "no JSON, or cut short"
        parts = told.get("weight_map") if path.endswith(".index.json") and isinstance(told, dict) else None
        if isinstance(parts, dict):
            folder = os.path.dirname(path)
            lacking = sorted({str(p) for p in parts.values() if not os.path.isfile(os.path.join(folder, str(p)))})
            if lacking:
                return "names %s, which is not there" % ", ".join(lacking[:5])
    return None


def _safetensors(path: str, size: int) -> str | None:
    with open(path, "rb") as stream:
        head = stream.read(8)
        if len(head) < 8:
            return "cut short"
        (length,) = struct.unpack("<Q", head)
        if length > MAX_HEADER_BYTES:
            return "no safetensors file"
        if 8 + length > size:
            return "cut short"
        try:
            tensors = json.loads(stream.read(length).decode("utf-8"))
            ends = [int(facts["data_offsets"][1]) for name, facts in tensors.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return "no safetensors file"
    wanted = 8 + length + max(ends, default=0)
    if size != wanted:
        return "%d bytes, its header says %d" % (size, wanted)
    return None

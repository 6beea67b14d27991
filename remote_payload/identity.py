"""What data and target a run was trained on: files, bytes, and hashes of samples of each.

Rule: cheap enough to be taken at every start of a run over terabytes, and enough to tell data that grew from
other data.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

SAMPLES = 16
SAMPLE_BYTES = 65536
MODEL_FILES = ("config.json", "tokenizer.json")
WEIGHT_FILES = (".safetensors", ".bin")

FileIdentity = Dict[str, Any]
"""name, bytes, samples: [offset, bytes, sha256] each."""


def identify(files: Sequence[Path]) -> List[FileIdentity]:
    """Raises OSError."""
    return [{"name": file.name, "bytes": file.stat().st_size, "samples": _sample(file)} for file in files]


def identity_of_model(folder: Path) -> str:
    """Of what its hidden states depend on. Raises OSError."""
    files = sorted(one for one in folder.iterdir() if one.name in MODEL_FILES or one.suffix in WEIGHT_FILES)
    return hashlib.sha256(json.dumps(identify(files)).encode()).hexdigest()


def other_than_grown(old: Sequence[FileIdentity], files: Sequence[Path]) -> List[str]:
    """Sentences: what keeps these files from being the old ones grown at their ends, and more files."""
    found = {file.name: file for file in files}
    sentences = []
    for one in old:
        file = found.get(one["name"])
        if file is None:
            sentences.append(f"{one['name']} is gone")
        elif file.stat().st_size < one["bytes"]:
            sentences.append(f"{one['name']} has {file.stat().st_size} bytes, had {one['bytes']}")
        elif any(_hash(file, offset, size) != digest for offset, size, digest in one["samples"]):
            sentences.append(f"{one['name']} is not what it was, where it had been sampled")
    return sentences


def _sample(file: Path) -> List[List[Any]]:
    """The beginning, the end and places evenly between."""
    size = file.stat().st_size
    length = min(SAMPLE_BYTES, size)
    offsets = sorted({round(number * (size - length) / (SAMPLES - 1)) for number in range(SAMPLES)})
    return [[offset, length, _hash(file, offset, length)] for offset in offsets]


def _hash(file: Path, offset: int, size: int) -> str:
    with file.open("rb") as stream:
        stream.seek(offset)
        return hashlib.sha256(stream.read(size)).hexdigest()

"""Wheels of a few hundred bytes and locks for them: zip files with METADATA and RECORD, no build needed."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

LONG_AGO = (2020, 1, 1, 0, 0, 0)


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str] | None = None, tag: str = "py3-none-any"
) -> Path:
    """files: beside what makes it a wheel; without, a package that knows its version. The same call, the same bytes."""
    info = f"{name}-{version}.dist-info"
    contents = dict(files or {f"{name}/__init__.py": f"VERSION = {version!r}\n"})
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: {tag}\n"
    contents[f"{info}/RECORD"] = "".join(
        [*(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in contents.items()),
         f"{info}/RECORD,,\n"]
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in contents.items():
            archive.writestr(zipfile.ZipInfo(inner, LONG_AGO), text)
    return path


def lock_line(wheel: Path, marker: str = "") -> str:
    """As `uv pip compile --generate-hashes` writes it."""
    name, version = wheel.name.split("-")[:2]
    condition = f" ; {marker}" if marker else ""
    return f"{name}=={version}{condition} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode("ascii")

"""From a record, or a wish, to the lab. The one place that knows both kinds."""

from __future__ import annotations

from pathlib import Path

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.real import RealLab, why_not
from orchestrator.lab.records import LabKind, LabRecord
from orchestrator.lab.surface import Lab


def open_lab(record: LabRecord) -> Lab:
    """The lab behind a record; it may be up, broken or left over."""
    return RealLab(record) if record.kind == "real" else EmbeddedLab(record)


def bring_up(kind: LabKind | None = None, *, venv: Path | None = None) -> Lab:
    """Make a lab. kind None: the real one where this machine and user can have it."""
    if kind == "real" or (kind is None and why_not() is None):
        return RealLab.up(venv=venv)
    return EmbeddedLab.up(venv=venv)

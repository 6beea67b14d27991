"""Failures that an op expects and names.

Rule: anything else that escapes from an op is a bug, and is sent with its traceback.
"""

from __future__ import annotations


class OpError(Exception):
    """kind: one stable word (busy, missing, disk_full, ...); message: one sentence; evidence: what was seen."""

    def __init__(self, kind: str, message: str, evidence: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.evidence = evidence


class Cancelled(Exception):
    """The other side gave up on this request, or is gone."""

"""What is fuzzed: every kind of `orch read`, with its cases as seeds; and what else reads output (MORE)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.operations.readers import READERS
from tests.fuzz.harness import JUDGED, Target

CASES = Path(__file__).parent.parent / "data" / "read"
MORE: tuple[Target, ...] = ()
"""Readers that are no kind of their own: Target(name, read, seeds)."""


_OWN: dict[str, set[str]] = {
    "smi-csv": {"code", "values", "columns"},
    "smi-apps": {"code"},
    "smi-xml": {"code", "listed"},
    "nvml": {"code", "count"},
    "ssh": {"times"},
    "pct": {"times"},
    "inventory": {"line", "column", "path"},
    "pip": {"change", "source", "package"},
    "import": {"package", "library"},
    "log": {"counted", "text", "exception", "package", "table_rss_kb"},
    "disk": {"samples", "per_sample_bytes", "samples_left", "times"},
}
"""Kind -> fields whose words are the reader's own, besides `kind`."""


def seeds_of(kind: str) -> list[str]:
    files = sorted(path for path in (CASES / kind).glob("*") if path.name != "expected.json")
    return [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]


def _of_kind(kind: str) -> Target:
    return Target(kind, READERS[kind].read, seeds_of(kind), JUDGED | _OWN[kind])


TARGETS = {target.name: target for target in (*map(_of_kind, READERS), *MORE)}

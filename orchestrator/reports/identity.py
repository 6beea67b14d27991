"""PURE: what a run would start from now, for people and as canonical JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.diagnosis.comparable import comparable_facts
from orchestrator.diagnosis.diff import KINDS, OUTSIDE_IDENTITY, STACK
from orchestrator.ledger.fingerprint import identity_hash
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_mapping
from orchestrator.reports.table import DASH, render_rows

SCHEMA = "orch.identity/1"
SHOWN = 12
"""Of one section; --json has all."""
OF_A_RUN = ("replaced", "compiler", "loaded")
"""Known only once something runs."""


def identity_text(record: Mapping[str, object]) -> str:
    """One line, keys sorted, nothing that changes by itself: the same for the same, byte for byte."""
    told = {"schema": SCHEMA, "identity_hash": identity_hash(record)}
    about = {**told, "identity": record.get("identity"), "unknown": record.get("unknown")}
    return json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def render_identity(record: Mapping[str, object], label: str) -> str:
    lines = [f"{label}: identity {identity_hash(record) or DASH}"]
    facts = comparable_facts(record, None)
    rows = []
    for section in facts:
        kind = section.partition(":")[0]
        values = facts[section]
        if values is None or kind in OUTSIDE_IDENTITY or kind in OF_A_RUN or section == "builds":
            continue
        names = sorted(values)
        if len(names) > SHOWN:
            told = [name for name in names if kind == "packages" and STACK.fullmatch(name)]
            rows.append((KINDS.get(kind, section), f"{len(names)} in all: --json has them"))
            names = told[: 2 * SHOWN]
        for name in names:
            value = "value not shown" if kind == "secrets" else values[name] or DASH
            rows.append((KINDS.get(kind, section), one_line(value if name == kind else f"{name} {value}", 300)))
    lines.append(render_rows(rows, indent="  "))
    lines += [one_line(f"not known: {name}: {why}", 300) for name, why in as_mapping(record.get("unknown")).items()]
    return "\n".join(lines)

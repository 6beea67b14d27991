"""What nvidia-smi tells of each GPU: what it is and how it is set, and, apart from that, the state it is in."""

from __future__ import annotations

import re
import shutil
from typing import Any, Dict, List, Tuple

from .commands import ask
from .records import Record

IDENTITY: Dict[str, str] = {
    "index": "index",
    "name": "name",
    "compute_cap": "capability",
    "memory.total": "memory_total_mib",
    "vbios_version": "vbios",
    "power.limit": "power_limit_w",
    "ecc.mode.current": "ecc_mode",
    "mig.mode.current": "mig_mode",
    "compute_mode": "compute_mode",
    "persistence_mode": "persistence_mode",
}
STATE: Dict[str, str] = {
    "uuid": "uuid",
    "pstate": "pstate",
    "clocks.sm": "sm_clock_mhz",
    "clocks.max.sm": "max_sm_clock_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "ecc.errors.uncorrected.volatile.total": "uncorrected_ecc_errors",
}
DRIVER = "driver_version"
FEW = ("index", "name", "memory.total", DRIVER, "uuid")
"""For a driver that knows not all of the others: it then refuses the whole question."""
DEADLINE_S = 8.0
TEXTS = ("vbios_version", "uuid", "name", "compute_cap", DRIVER)
YOUNG = "compute_cap"
"""Drivers of before 2022 do not know it."""


def gpu_facts() -> Record | None:
    """{driver, identity: [one a GPU], state: [one a GPU]}; a value that nvidia-smi does not tell is None.

    None: there is no nvidia-smi. Raises ValueError with what it said instead of an answer."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    said = ""
    every = (*IDENTITY, *STATE, DRIVER)
    for fields in (every, tuple(field for field in every if field != YOUNG), FEW):
        question = [path, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        code, out, error = ask(question, DEADLINE_S)
        if code == 0:
            return _facts(parse_rows(out, fields))
        said = error or out.strip() or "exit code %s" % code
        if code is None or "not a valid field" not in out + error:
            break
    raise ValueError("nvidia-smi: %s" % said[:200])


def _facts(rows: List[Dict[str, Any]]) -> Record:
    def part(names: Dict[str, str]) -> List[Record]:
        return [{told: row.get(field) for field, told in names.items()} for row in rows]

    drivers = {row.get(DRIVER) for row in rows}
    return {"driver": drivers.pop() if len(drivers) == 1 else None, "identity": part(IDENTITY), "state": part(STATE)}


def parse_rows(text: str, fields: Tuple[str, ...]) -> List[Dict[str, Any]]:
    """Raises ValueError for a line that is no row."""
    rows = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if values == [""]:
            continue
        if len(values) != len(fields):
            raise ValueError("not a row: %s" % line[:200])
        rows.append({field: _value(field, values[at]) for at, field in enumerate(fields)})
    return rows


def _value(field: str, text: str) -> Any:
    if text in ("", "N/A", "ERR!", "(null)") or (text.startswith("[") and text.endswith("]")):
        return None
    if field in TEXTS or not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text):
        return text
    return float(text) if "." in text else int(text)

"""Whether what a snapshot of the compile cache holds will be found again by a run of now.

Hard fields are in the keys: where one differs, every look-up misses. Soft fields may change what is compiled; hits and
misses after the launch judge them. Rule: pure; what is not known on either side is not compared, and said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.probes.values import as_mapping, as_str

if TYPE_CHECKING:
    from orchestrator.probes.cache_census import Devices

HARD = ("torch", "torch_build", "cuda", "triton", "triton_build", "python", "gpus", "capability")
SOFT = ("code", "settings", "command", "driver", "gpu_count")


@dataclass(frozen=True)
class Maker:
    """With what entries were made: the values as the fingerprint of that run tells them."""

    run_id: str | None
    """None: the target as it was when it was saved."""
    hard: Mapping[str, object]
    soft: Mapping[str, object]


@dataclass(frozen=True)
class Differs:
    field: str
    kept: str
    """As the snapshot has it."""
    now: str


@dataclass(frozen=True)
class Fit:
    hard: tuple[Differs, ...]
    soft: tuple[Differs, ...]
    unknown: tuple[str, ...]
    """Hard fields that could not be compared."""


def parse_maker(told: object) -> Maker | None:
    raw = as_mapping(told)
    hard = as_mapping(raw.get("hard"))
    return Maker(as_str(raw.get("run_id")), hard, as_mapping(raw.get("soft"))) if hard else None


def parse_makers(told: object) -> tuple[Maker, ...]:
    return tuple(made for made in map(parse_maker, told if isinstance(told, list) else []) if made is not None)


def judge(made_by: Sequence[Maker], devices: Devices | None, now: Maker | None, needed: Devices | None) -> Fit:
    """made_by, devices: of the snapshot; needed: the devices whose graphs the last good run's cache held.

    Of several makers the one that fits best is compared: the others' entries do no harm."""
    lacking = _lacking(devices, needed)
    if now is None or not made_by:
        return Fit(lacking, (), HARD)
    fits = [
        Fit(
            (*_differences(made.hard, now.hard, HARD), *lacking),
            _differences(made.soft, now.soft, SOFT),
            tuple(field for field in HARD if made.hard.get(field) is None or now.hard.get(field) is None),
        )
        for made in made_by
    ]
    return min(fits, key=lambda fit: (len(fit.hard), len(fit.soft)))


def _differences(kept: Mapping[str, object], now: Mapping[str, object], fields: Sequence[str]) -> tuple[Differs, ...]:
    known = [field for field in fields if kept.get(field) is not None and now.get(field) is not None]
    return tuple(
        Differs(field, value_text(kept[field]), value_text(now[field])) for field in known if kept[field] != now[field]
    )


def _lacking(devices: Devices | None, needed: Devices | None) -> tuple[Differs, ...]:
    """A graph of one device index serves no other."""
    if devices is None or needed is None or not (devices.complete and needed.complete):
        return ()
    lacking = [device for device in needed.graphs if device not in devices.graphs]
    kept = ", ".join(devices.graphs) or "none"
    return (Differs("devices", kept, ", ".join(needed.graphs)),) if lacking else ()


def value_text(value: object) -> str:
    if isinstance(value, str):
        return value if len(value) <= 40 else value[:12]
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 120 else text[:119] + "…"

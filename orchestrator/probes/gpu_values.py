"""What stands in a value of nvidia-smi, in CSV and in XML: a number with its unit, a word, or that there is none.

Rule: what is neither of the expected form nor a known way to say that there is none is NotAValue, never a guess.
"""

from __future__ import annotations

import re
from typing import Literal

Form = Literal["text", "whole", "mib", "percent", "celsius", "watt", "mhz", "switch", "reasons"]

WITH_UNITS: tuple[Form, ...] = ("mib", "watt", "mhz", "percent")

# Column -> (field of GpuFact, what stands in it).
COLUMNS: dict[str, tuple[str, Form]] = {
    "index": ("index", "whole"),
    "name": ("name", "text"),
    "gpu_name": ("name", "text"),
    "uuid": ("uuid", "text"),
    "gpu_uuid": ("uuid", "text"),
    "pci.bus_id": ("bus", "text"),
    "gpu_bus_id": ("bus", "text"),
    "serial": ("serial", "text"),
    "gpu_serial": ("serial", "text"),
    "driver_version": ("driver_version", "text"),
    "memory.total": ("memory_total_mib", "mib"),
    "memory.used": ("memory_used_mib", "mib"),
    "memory.free": ("memory_free_mib", "mib"),
    "memory.reserved": ("memory_reserved_mib", "mib"),
    "utilization.gpu": ("utilization_percent", "percent"),
    "utilization.memory": ("memory_utilization_percent", "percent"),
    "temperature.gpu": ("temperature_c", "celsius"),
    "temperature.memory": ("memory_temperature_c", "celsius"),
    "fan.speed": ("fan_percent", "percent"),
    "power.draw": ("power_w", "watt"),
    "power.draw.average": ("power_w", "watt"),
    "power.draw.instant": ("power_instant_w", "watt"),
    "power.limit": ("power_limit_w", "watt"),
    "enforced.power.limit": ("power_limit_w", "watt"),
    "clocks.sm": ("sm_clock_mhz", "mhz"),
    "clocks.current.sm": ("sm_clock_mhz", "mhz"),
    "clocks.gr": ("graphics_clock_mhz", "mhz"),
    "clocks.current.graphics": ("graphics_clock_mhz", "mhz"),
    "clocks.mem": ("memory_clock_mhz", "mhz"),
    "clocks.current.memory": ("memory_clock_mhz", "mhz"),
    "clocks.max.sm": ("sm_clock_max_mhz", "mhz"),
    "pstate": ("performance_state", "text"),
    "clocks_throttle_reasons.active": ("throttle", "reasons"),
    "clocks_event_reasons.active": ("throttle", "reasons"),
    "mig.mode.current": ("mig", "switch"),
    "ecc.mode.current": ("ecc", "switch"),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected", "whole"),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", "whole"),
    "compute_mode": ("compute_mode", "text"),
    "gpu_recovery_action": ("recovery_action", "text"),
}

THROTTLE_BITS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

_ABSENT = re.compile(
    r"\[.*\]|N/A|n/a|ERR!|\(null\)||-|Not Supported|Not Active Or Available|Unknown Error|Function Not Found"
    r"|Requested functionality has been deprecated|GPU is lost|Insufficient Permissions|Not Found|No data"
    r"|GPU requires reset|Reset required|Unknown",
    re.DOTALL,
)
_FAULTY = re.compile(r"\[?(?P<words>ERR!|GPU is lost|GPU requires reset|Reset [Rr]equired|Unknown Error)\]?")
_NUMBER = re.compile(r"(?P<number>-?[0-9]{1,20}(?:\.[0-9]{1,6})?) ?(?P<unit>[A-Za-z%/]{1,8})?")
_ALL_ONES = frozenset({2**32 - 1, 2**44 - 1, 2**64 - 1})
"""What a driver leaves in a number that it could not fill, as bytes or as MiB."""
_TO_MIB = {"MiB": 1.0, "MB": 1.0, "GiB": 2.0**10, "TiB": 2.0**20}
_UNITS: dict[str, dict[str, float]] = {
    "whole": {},
    "mib": _TO_MIB,
    "percent": {"%": 1.0},
    "celsius": {"C": 1.0},
    "watt": {"W": 1.0, "mW": 0.001},
    "mhz": {"MHz": 1.0, "GHz": 1000.0},
}


class NotAValue(ValueError):
    """What stands there is neither of the column's form nor a way to say that there is none."""


def is_absent(text: str) -> bool:
    return _ABSENT.fullmatch(text) is not None


def fault_in(text: str) -> str | None:
    """The words by which a value says that the GPU is faulty, not that it lacks the feature."""
    found = _FAULTY.fullmatch(text)
    return found["words"] if found else None


def value_of(form: Form, text: str, unit: str | None = None) -> str | int | float | bool | tuple[str, ...] | None:
    """unit: what the header gives, for a value without its own. Raises NotAValue."""
    if is_absent(text):
        return None
    if form == "text":
        return text
    if form == "switch":
        if text not in ("Enabled", "Disabled", "On", "Off"):
            raise NotAValue(text)
        return text in ("Enabled", "On")
    if form == "reasons":
        return throttle_reasons(text)
    found = _NUMBER.fullmatch(text)
    if found is None or (found["number"].startswith("-") and form != "celsius"):
        raise NotAValue(text)
    if float(found["number"]) in _ALL_ONES:
        return None
    factor = 1.0
    if found["unit"] or unit:
        units = _UNITS[form]
        said = found["unit"] or unit or ""
        if said not in units:
            raise NotAValue(text)
        factor = units[said]
    if form != "watt" and "." not in found["number"] and factor == 1.0:
        return int(found["number"])
    number = float(found["number"]) * factor
    return number if form == "watt" else round(number)


def lacks_unit(text: str) -> bool:
    return text[-1:].isdigit()


def throttle_reasons(text: str) -> tuple[str, ...]:
    """`0x0000000000000004` -> ("sw_power_cap",). A bit without a name keeps its number. Raises NotAValue."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) is None:
        raise NotAValue(text)
    mask = int(text, 16)
    bits = [1 << place for place in range(64) if mask >> place & 1]
    return tuple(THROTTLE_BITS.get(bit, f"{bit:#x}") for bit in bits)

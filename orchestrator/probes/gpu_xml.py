"""`nvidia-smi -q -x`: the whole state as XML, of any version of its schema, whole or cut.

Rule: a value is that of its own element, wherever tags are missing; what a break leaves out is unknown, not 0.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu import GpuProcess
from orchestrator.probes.gpu_csv import FAULTY, GpuRow, action_wanted
from orchestrator.probes.gpu_trouble import ACTIONS, RESET, WAYS_OUT, troubles_in
from orchestrator.probes.gpu_values import Form, NotAValue, fault_in, is_absent, value_of
from orchestrator.probes.gpu_xml_document import Element, read_document
from orchestrator.probes.spans import Located, Piece, Span, Value

_SCHEMA = re.compile(r"nvsmi_device_v(?P<version>[0-9]{1,3})\.dtd")

# Path below <gpu> -> (field of GpuRow, form). Of several that fill one field, the first that tells wins.
_PATHS: tuple[tuple[str, str, Form], ...] = (
    ("product_name", "name", "text"),
    ("uuid", "uuid", "text"),
    ("serial", "serial", "text"),
    ("fan_speed", "fan_percent", "percent"),
    ("performance_state", "performance_state", "text"),
    ("compute_mode", "compute_mode", "text"),
    ("gpu_recovery_action", "recovery_action", "text"),
    ("mig_mode/current_mig", "mig", "switch"),
    ("ecc_mode/current_ecc", "ecc", "switch"),
    ("fb_memory_usage/total", "memory_total_mib", "mib"),
    ("fb_memory_usage/used", "memory_used_mib", "mib"),
    ("fb_memory_usage/free", "memory_free_mib", "mib"),
    ("fb_memory_usage/reserved", "memory_reserved_mib", "mib"),
    ("memory_usage/total", "memory_total_mib", "mib"),
    ("memory_usage/used", "memory_used_mib", "mib"),
    ("memory_usage/free", "memory_free_mib", "mib"),
    ("utilization/gpu_util", "utilization_percent", "percent"),
    ("utilization/memory_util", "memory_utilization_percent", "percent"),
    ("temperature/gpu_temp", "temperature_c", "celsius"),
    ("temperature/memory_temp", "memory_temperature_c", "celsius"),
    ("power_readings/power_state", "performance_state", "text"),
    ("gpu_power_readings/power_state", "performance_state", "text"),
    ("power_readings/power_draw", "power_w", "watt"),
    ("gpu_power_readings/power_draw", "power_w", "watt"),
    ("gpu_power_readings/average_power_draw", "power_w", "watt"),
    ("gpu_power_readings/instant_power_draw", "power_instant_w", "watt"),
    ("power_readings/enforced_power_limit", "power_limit_w", "watt"),
    ("power_readings/power_limit", "power_limit_w", "watt"),
    ("gpu_power_readings/current_power_limit", "power_limit_w", "watt"),
    ("clocks/sm_clock", "sm_clock_mhz", "mhz"),
    ("clocks/graphics_clock", "graphics_clock_mhz", "mhz"),
    ("clocks/mem_clock", "memory_clock_mhz", "mhz"),
    ("max_clocks/sm_clock", "sm_clock_max_mhz", "mhz"),
    ("ecc_errors/volatile/single_bit/total", "ecc_corrected", "whole"),
    ("ecc_errors/volatile/double_bit/total", "ecc_uncorrected", "whole"),
)
_REASONS = re.compile(r"clocks_(?:throttle|event)_reasons/clocks_(?:throttle|event)_reason_(?P<reason>\w+)")


@dataclass(frozen=True)
class MigDevice(Located):
    index: int | None
    gpu_instance: int | None
    compute_instance: int | None
    multiprocessors: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True)
class XmlProcess(GpuProcess, Located):
    type: str | None = None
    """`C`: computes; `G`: draws; `C+G`."""


@dataclass(frozen=True)
class XmlGpu(GpuRow):
    mig_devices: tuple[MigDevice, ...] = ()
    others: tuple[XmlProcess, ...] = ()
    """Processes that only draw."""


@dataclass(frozen=True)
class XmlReading(Located):
    schema_version: int | None
    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    timestamp: str | None
    gpus: tuple[XmlGpu, ...]
    findings: tuple[Finding, ...]


def read_gpu_xml(text: str) -> XmlReading:
    document = read_document(text)
    findings = [*document.findings, *troubles_in(document.around)]
    values, spans = _Values(document.top.texts), {}
    top: dict[str, Any] = {}
    for path in _TOP:
        if path in values.texts:
            top[path], spans[path] = values.text(path)
    attached = values.filled((("attached_gpus", "attached_gpus", "whole"),))
    top.update(attached[0])
    spans.update(attached[1])
    gpus = [_gpu(element) for element in document.top.inside]
    for gpu, element in zip(gpus, document.top.inside, strict=True):
        findings += [*_faults(gpu), *_wishes(gpu, element.texts)]
    version = _SCHEMA.search(text[:1000])
    if version is not None:
        spans["schema_version"] = Span(version.start("version"), version.end("version"))
    if (top.get("attached_gpus") or 0) > len(gpus) and not findings:
        place = spans["attached_gpus"]
        counted = {"attached": Value(top["attached_gpus"], place), "listed": Value(len(gpus), place)}
        findings.append(finding_at(Piece(place.of(text), place.start), "gpus_missing", WAYS_OUT["no_devices"], counted))
    return XmlReading(
        schema_version=int(version["version"]) if version else None,
        driver_version=top.get("driver_version"),
        cuda_version=top.get("cuda_version"),
        attached_gpus=top.get("attached_gpus"),
        timestamp=top.get("timestamp"),
        gpus=tuple(gpus),
        findings=tuple(findings),
        spans=spans,
    )


_TOP = ("timestamp", "driver_version", "cuda_version")


class _Values:
    def __init__(self, texts: Mapping[str, Piece]) -> None:
        self.texts = texts

    def text(self, path: str) -> tuple[str | None, Span]:
        piece = self.texts[path]
        return (None if is_absent(piece.text) else _unescaped(piece.text)), piece.span

    def filled(self, paths: Sequence[tuple[str, str, Form]]) -> tuple[dict[str, Any], dict[str, Span]]:
        values: dict[str, Any] = {}
        spans: dict[str, Span] = {}
        for path, name, form in paths:
            piece = self.texts.get(path)
            if piece is None or values.get(name) is not None:
                continue
            try:
                values[name], spans[name] = value_of(form, _unescaped(piece.text)), piece.span
            except NotAValue:
                continue
        return values, spans


def _gpu(element: Element) -> XmlGpu:
    reader = _Values(element.texts)
    values, spans = reader.filled(_PATHS)
    if element.bus is not None:
        values["bus"], spans["bus"] = element.bus.text, element.bus.span
    for name, pattern in (("ecc_corrected", _CORRECTABLE), ("ecc_uncorrected", _UNCORRECTABLE)):
        if values.get(name) is None and (errors := _ecc(element, pattern)):
            values[name], spans[name] = errors
    reasons, place = _throttle(element)
    if reasons is not None and place is not None:
        values["throttle"], spans["throttle"] = reasons, place
    if (fault := _fault(element.texts)) is not None:
        values["error"], spans["error"] = fault.text, fault.span
    facts = {name: values.pop(name, None) for name in ("index", "name", "memory_total_mib", "memory_used_mib")}
    migs = tuple(_mig(inside) for inside in element.inside if inside.name == "mig_device" and inside.whole)
    listed = tuple(process for process in map(_process, element.inside) if process is not None)
    computing = tuple(process for process in listed if "C" in (process.type or "C"))
    told = not element.closed.isdisjoint(_PROCESSES) and element.texts.keys().isdisjoint(_PROCESSES)
    return XmlGpu(
        **facts,
        **values,
        processes=computing if told or computing else None,
        mig_devices=migs,
        others=tuple(process for process in listed if process not in computing),
        spans=spans,
    )


_PROCESSES = {"processes", "compute_processes"}
"""With words in it (`N/A`), or cut, it does not say that there are none."""


def _fault(texts: Mapping[str, Piece]) -> Piece | None:
    """`Unknown Error` in one place is a sensor; wherever a number belongs it is the GPU."""
    faults = [(piece, words) for piece in texts.values() if (words := fault_in(piece.text))]
    certain = next((piece for piece, words in faults if words != "Unknown Error"), None)
    if certain is not None:
        return certain
    numbers = [texts[path].text for path, _, form in _PATHS if form not in ("text", "switch") and path in texts]
    unknown = [text for text in numbers if fault_in(text)]
    return faults[0][0] if len(unknown) > 2 and len(unknown) == len(numbers) else None


_CORRECTABLE = re.compile(r"ecc_errors/volatile/[a-z0-9]+_correctable")
_UNCORRECTABLE = re.compile(r"ecc_errors/volatile/[a-z0-9]+_uncorrectable(?:_[a-z]+)?")


def _ecc(element: Element, pattern: re.Pattern[str]) -> tuple[int, Span] | None:
    """Since schema 12 they are counted by kind of memory. Of a list that was cut the sum is not known."""
    if "ecc_errors/volatile" not in element.closed:
        return None
    found = [piece for path, piece in element.texts.items() if pattern.fullmatch(path)]
    counts = [piece for piece in found if re.fullmatch("[0-9]{1,12}", piece.text)]
    if not counts:
        return None
    return sum(int(piece.text) for piece in counts), Span(counts[0].start, counts[-1].span.end)


def _throttle(element: Element) -> tuple[tuple[str, ...] | None, Span | None]:
    if element.closed.isdisjoint(("clocks_throttle_reasons", "clocks_event_reasons")):
        return None, None
    found = [
        (match["reason"], piece)
        for path, piece in element.texts.items()
        if (match := _REASONS.fullmatch(path)) and piece.text in ("Active", "Not Active")
    ]
    if not found:
        return None, None
    active = tuple(_REASON_NAMES.get(reason, reason) for reason, piece in found if piece.text == "Active")
    return active, Span(found[0][1].start, found[-1][1].span.end)


_REASON_NAMES = {"display_clocks_setting": "display_clock_setting"}
"""Later spellings of what older drivers call otherwise."""


_MIG_PATHS: tuple[tuple[str, str, Form], ...] = (
    ("index", "index", "whole"),
    ("gpu_instance_id", "gpu_instance", "whole"),
    ("compute_instance_id", "compute_instance", "whole"),
    ("device_attributes/shared/multiprocessor_count", "multiprocessors", "whole"),
    ("fb_memory_usage/total", "memory_total_mib", "mib"),
    ("fb_memory_usage/used", "memory_used_mib", "mib"),
)


def _mig(element: Element) -> MigDevice:
    values, spans = _Values(element.texts).filled(_MIG_PATHS)
    for name in ("index", "gpu_instance", "compute_instance"):
        values.setdefault(name, None)
    return MigDevice(**values, spans=spans)


_PROCESS_PATHS: tuple[tuple[str, str, Form], ...] = (
    ("pid", "pid", "whole"),
    ("process_name", "name", "text"),
    ("used_memory", "used_mib", "mib"),
    ("type", "type", "text"),
)


def _process(element: Element) -> XmlProcess | None:
    values, spans = _Values(element.texts).filled(_PROCESS_PATHS)
    if element.name != "process_info" or not element.whole or values.get("pid") is None:
        return None
    return XmlProcess(
        pid=values["pid"],
        used_mib=values.get("used_mib"),
        name=values.get("name"),
        type=values.get("type"),
        spans=spans,
    )


def _faults(gpu: XmlGpu) -> list[Finding]:
    if gpu.error is None:
        return [action_wanted(gpu.recovery_action, gpu.spans)] if gpu.recovery_action in ACTIONS else []
    about = {"bus": Value(gpu.bus, gpu.spans["bus"])} if gpu.bus is not None else {}
    return [finding_at(Piece(gpu.error, gpu.spans["error"].start), FAULTY, RESET, about)]


_WISHES = {
    "remapped_rows/remapped_row_failure": (FAULTY, "its memory cannot be repaired any more: have the GPU replaced"),
    "gpu_reset_status/reset_required": (FAULTY, RESET),
    "gpu_reset_status/drain_and_reset_recommended": (FAULTY, RESET),
    "remapped_rows/remapped_row_pending": ("memory_repair_pending", RESET),
    "retired_pages/pending_retirement": ("memory_repair_pending", RESET),
    "retired_pages/pending_blacklist": ("memory_repair_pending", RESET),
}


def _wishes(gpu: XmlGpu, texts: Mapping[str, Piece]) -> list[Finding]:
    """What the driver answers Yes to."""
    about = {"bus": Value(gpu.bus, gpu.spans["bus"])} if gpu.bus is not None else {}
    said = [(texts[path], kind, way_out) for path, (kind, way_out) in _WISHES.items() if path in texts]
    return [finding_at(piece, kind, way_out, about) for piece, kind, way_out in said if piece.text == "Yes"][:1]


def _unescaped(text: str) -> str:
    return html.unescape(text) if "&" in text else text

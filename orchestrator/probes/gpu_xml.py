"""`nvidia-smi -q -x`: the whole state as XML, of any version of its schema, whole or cut.

Rule: the parser expands nothing and fetches nothing: a document that declares entities is refused at once. What stands
before the place where a document breaks off is kept, and said to be part of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu import GpuProcess
from orchestrator.probes.gpu_csv import FAULTY, GpuRow, action_wanted
from orchestrator.probes.gpu_trouble import ACTIONS, RESET, troubles_in
from orchestrator.probes.gpu_values import Form, NotAValue, fault_in, is_absent, value_of
from orchestrator.probes.spans import Located, Piece, Span, Value, said_lines

MAX_DEPTH = 32
MAX_ELEMENTS = 200_000
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


@dataclass
class _Element:
    """One <gpu>, <mig_device> or <process_info>: its texts by path, where each stands, and the like of it inside."""

    name: str
    depth: int
    texts: dict[str, Piece] = field(default_factory=dict)
    inside: list[_Element] = field(default_factory=list)
    whole: bool = False
    bus: Piece | None = None


_OWN = {"gpu", "mig_device", "process_info"}


def read_gpu_xml(text: str) -> XmlReading:
    begin, end = _bounds(text)
    document = _Document(text, begin, end)
    findings = document.parse() if begin < end else []
    findings += troubles_in(
        [*said_lines(text[:begin]), *(Piece(line.text, end + line.start) for line in said_lines(text[end:]))]
    )
    values, spans = _Values(document.top.texts), {}
    top: dict[str, Any] = {}
    for path, name in _TOP.items():
        if path in values.texts:
            top[name], spans[name] = values.text(path)
    attached = values.filled((("attached_gpus", "attached_gpus", "whole"),))
    gpus = [_gpu(element) for element in document.top.inside]
    for gpu in gpus:
        findings += _faults(gpu)
    version = _SCHEMA.search(text[:1000])
    if version is not None:
        spans["schema_version"] = Span(version.start("version"), version.end("version"))
    return XmlReading(
        schema_version=int(version["version"]) if version else None,
        driver_version=top.get("driver_version"),
        cuda_version=top.get("cuda_version"),
        attached_gpus=attached[0].get("attached_gpus"),
        timestamp=top.get("timestamp"),
        gpus=tuple(gpus),
        findings=tuple(findings),
        spans={**spans, **attached[1]},
    )


def _bounds(text: str) -> tuple[int, int]:
    """Of the document: warnings may stand before and behind it."""
    begin = next((place for mark in ("<?xml", "<nvidia_smi_log") if (place := text.find(mark)) >= 0), len(text))
    end = text.find(_CLOSING, begin)
    return begin, len(text) if end < 0 else end + len(_CLOSING)


_CLOSING = "</nvidia_smi_log>"
_TOP = {"timestamp": "timestamp", "driver_version": "driver_version", "cuda_version": "cuda_version"}


class _Document:
    """Expat's events, as elements whose texts know their places."""

    def __init__(self, text: str, begin: int, end: int) -> None:
        self.top = _Element("nvidia_smi_log", 0)
        self._text = text
        self._open: list[str] = []
        self._owners = [self.top]
        self._elements = 0
        self._places = _Places(text[begin:end], begin)
        self._content: tuple[int, bool] | None = None
        """Where the innermost element's content begins, and whether it holds nothing but text so far."""

    def parse(self) -> list[Finding]:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        self._parser = parser
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._refuse_entity
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        data = self._places.data
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            return [self._broken(error, len(data))]
        except _RefusedError as refused:
            place = self._places.character(parser.CurrentByteIndex)
            return [self._at(place, refused.args[0])]
        return []

    def _broken(self, error: expat.ExpatError, size: int) -> Finding:
        place = self._places.character(self._parser.ErrorByteIndex)
        early = error.code in _AT_THE_END or self._parser.ErrorByteIndex >= size
        return self._at(place, "truncated" if early else "not_well_formed")

    def _at(self, place: int, kind: str) -> Finding:
        """With the line that it happened on, or the last one that has words."""
        begin = self._text.rfind("\n", 0, place) + 1
        line = Piece(self._text[begin : self._text.find("\n", place) % (len(self._text) + 1)], begin).strip()
        if not line.text:
            kept = self._text[:begin].rstrip()
            start = kept.rfind("\n") + 1
            line = Piece(kept[start:], start).strip()
        return finding_at(line, kind, _WAYS_OUT[kind])

    def _refuse_entity(self, *_: object) -> None:
        raise _RefusedError("entities_refused")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if len(self._open) >= MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise _RefusedError("too_large")
        self._open.append(name)
        if name in _OWN:
            element = _Element(name, len(self._open))
            if "id" in attributes:
                element.bus = self._attribute(attributes["id"])
            self._owners[-1].inside.append(element)
            self._owners.append(element)
        self._content = (self._parser.CurrentByteIndex, True)

    def _attribute(self, value: str) -> Piece | None:
        start = self._places.character(self._parser.CurrentByteIndex)
        place = self._text.find(value, start, start + 400)
        return None if place < 0 or not value else Piece(value, place)

    def _end(self, name: str) -> None:
        owner = self._owners[-1]
        if self._content is not None:
            self._keep_text(owner)
        self._content = None
        if len(self._open) == owner.depth and owner is not self.top:
            owner.whole = True
            self._owners.pop()
        self._open.pop()

    def _keep_text(self, owner: _Element) -> None:
        """The element held nothing but text: from the end of its tag to here."""
        assert self._content is not None
        tag = self._places.character(self._content[0])
        begin = self._text.find(">", tag) + 1
        piece = Piece(self._text[begin : self._places.character(self._parser.CurrentByteIndex)], begin).strip()
        path = "/".join(self._open[max(owner.depth, 1) :])
        if piece.text and path and "<" not in piece.text:
            owner.texts.setdefault(path, piece)


class _Places:
    """Expat counts bytes, spans count characters."""

    def __init__(self, body: str, begin: int) -> None:
        self.data = body.encode("utf-8", "replace")
        self._ascii = len(self.data) == len(body)
        self._body = body
        self._begin = begin
        self._last = (0, 0)

    def character(self, index: int) -> int:
        if self._ascii:
            return self._begin + index
        byte, character = self._last if index >= self._last[0] else (0, 0)
        character += len(self.data[byte:index].decode("utf-8", "ignore"))
        self._last = (index, character)
        return self._begin + character


class _RefusedError(Exception):
    """Its argument is the finding's kind."""


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


def _gpu(element: _Element) -> XmlGpu:
    reader = _Values(element.texts)
    values, spans = reader.filled(_PATHS)
    if element.bus is not None:
        values["bus"], spans["bus"] = element.bus.text, element.bus.span
    for name, word in (("ecc_corrected", "_correctable"), ("ecc_uncorrected", "_uncorrectable")):
        if values.get(name) is None and (errors := _ecc(element.texts, word)):
            values[name], spans[name] = errors
    reasons, place = _throttle(element.texts)
    if reasons is not None and place is not None:
        values["throttle"], spans["throttle"] = reasons, place
    faults = (piece for piece in element.texts.values() if fault_in(piece.text) not in (None, "Unknown Error"))
    if (fault := next(faults, None)) is not None:
        values["error"], spans["error"] = fault.text, fault.span
    facts = {name: values.pop(name, None) for name in ("index", "name", "memory_total_mib", "memory_used_mib")}
    migs = tuple(_mig(inside) for inside in element.inside if inside.name == "mig_device" and inside.whole)
    listed = tuple(process for process in map(_process, element.inside) if process is not None)
    computing = tuple(process for process in listed if "C" in (process.type or "C"))
    return XmlGpu(
        **facts,
        **values,
        processes=computing if element.whole or listed else None,
        mig_devices=migs,
        others=tuple(process for process in listed if process not in computing),
        spans=spans,
    )


def _ecc(texts: Mapping[str, Piece], word: str) -> tuple[int, Span] | None:
    """Since schema 12 they are counted by kind of memory."""
    found = [piece for path, piece in texts.items() if path.startswith("ecc_errors/volatile/") and word in path]
    counts = [piece for piece in found if re.fullmatch("[0-9]{1,12}", piece.text)]
    if not counts:
        return None
    return sum(int(piece.text) for piece in counts), Span(counts[0].start, counts[-1].span.end)


def _throttle(texts: Mapping[str, Piece]) -> tuple[tuple[str, ...] | None, Span | None]:
    found = [(match["reason"], piece) for path, piece in texts.items() if (match := _REASONS.fullmatch(path))]
    if not found:
        return None, None
    active = tuple(reason for reason, piece in found if piece.text == "Active")
    return active, Span(found[0][1].start, found[-1][1].span.end)


_MIG_PATHS: tuple[tuple[str, str, Form], ...] = (
    ("index", "index", "whole"),
    ("gpu_instance_id", "gpu_instance", "whole"),
    ("compute_instance_id", "compute_instance", "whole"),
    ("device_attributes/shared/multiprocessor_count", "multiprocessors", "whole"),
    ("fb_memory_usage/total", "memory_total_mib", "mib"),
    ("fb_memory_usage/used", "memory_used_mib", "mib"),
)


def _mig(element: _Element) -> MigDevice:
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


def _process(element: _Element) -> XmlProcess | None:
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
    about = {"bus": Value(gpu.bus, gpu.spans["bus"])} if "bus" in gpu.spans else {}
    return [finding_at(Piece(gpu.error, gpu.spans["error"].start), FAULTY, RESET, about)]


def _unescaped(text: str) -> str:
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(escaped, plain)
    return text


_AT_THE_END = {
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}
_WAYS_OUT = {
    "truncated": "ask again, with more time: what is missing here is unknown, not 0",
    "not_well_formed": "look at the line: something else was written into the XML",
    "entities_refused": "nvidia-smi declares no entities: find out where this document comes from",
    "too_large": "nvidia-smi nests less and says less: find out where this document comes from",
}

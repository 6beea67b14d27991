"""Xid and SXid lines of the host's kernel log: what the driver, or the NVLink switch's, reports of a GPU.

Rule: the process that a line names was on the GPU when the driver noticed; it need not be the cause, and it may be
somebody who only looks (nvidia-smi). Never kill by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.probes.spans import OWN_WORDS, Located, Piece, Span

MONITORS = (
    "nvidia-smi",
    "nv-hostengine",
    "dcgm",
    "nvidia-persiste",
    "gpu-feature-dis",
    "nvidia-device-p",
    "nvitop",
    "gpustat",
)
"""Programs that look only, as the kernel cuts their names (15 characters)."""

Whose = Literal["hardware", "driver", "program", "consequence", "unknown"]

_LINE = re.compile(
    r"(?P<switch>S)?Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]{7,16})\): (?P<code>[0-9]{1,6})(?:, (?P<message>.{0,1000}))?"
)
_AT = re.compile(
    r"^(?:<[0-9]+>)?\[ ?(?P<uptime>[^\]\n]{1,40})\]|^(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,+Z-]{5,30})|"
    r"^(?P<syslog>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2})"
)
_PID = re.compile(r"\bpid='?(?P<pid>[0-9]{1,10}|<unknown>)'?")
_NAME = re.compile(r"\bname='?(?P<process>[^,']{1,64})'?")
_BEFORE = re.compile(r"caused by previous Xid (?P<cause>[0-9]{1,6})")
_RESET = "drain the host and reset the GPU, or reboot; if it comes again, replace the GPU"
_LOOK = "look at the program first: the same kind of fault of another program means the GPU"

# Code -> (what it means, whose fault it most often is, way out).
CODES: dict[int, tuple[str, Whose, str]] = {
    8: ("the GPU stopped processing", "program", _LOOK),
    13: ("an exception in the graphics engine: most often an illegal access by a kernel", "program", _LOOK),
    31: ("a page fault on the GPU: an illegal address", "program", _LOOK),
    32: ("a corrupted push buffer", "driver", "check the driver and the PCIe link"),
    38: ("a firmware error of the driver", "driver", _RESET),
    43: ("the GPU stopped processing for one program", "program", _LOOK),
    45: ("channels were cleaned up, after an error or a kill", "consequence", "look for what came before"),
    46: ("the GPU stopped processing", "driver", _RESET),
    48: ("an uncorrectable memory error (double-bit ECC)", "hardware", _RESET),
    61: ("a breakpoint of the internal micro-controller", "driver", _RESET),
    62: ("the internal micro-controller halted", "hardware", _RESET),
    63: ("a memory page or row was retired", "hardware", "let the run go on; reset the GPU when it is done"),
    64: ("a memory page or row could not be retired", "hardware", _RESET),
    66: ("an illegal access by the driver", "driver", "update the driver"),
    68: ("an exception of the video decoder", "driver", _LOOK),
    69: ("a class error of the graphics engine", "program", _LOOK),
    74: ("an NVLink error", "hardware", "check NVLink (nvidia-smi nvlink -e), then reset the GPU"),
    79: ("the GPU has fallen off the bus", "hardware", "reboot the host; check power, temperature and the PCIe slot"),
    92: ("many single-bit memory errors", "hardware", "plan a replacement"),
    94: ("a memory error that hit one program", "hardware", "start it again; reset the GPU when it is free"),
    95: ("a memory error that may have hit every program", "hardware", _RESET),
    109: ("a context switch timed out", "driver", _RESET),
    110: ("a security fault", "hardware", _RESET),
    119: ("the GPU's own processor (GSP) does not answer the driver", "driver", _RESET),
    120: ("an error in the GPU's own processor (GSP)", "driver", _RESET),
    121: ("an error of the chip-to-chip link", "hardware", _RESET),
    122: ("the GPU's flash could not be read", "hardware", _RESET),
    123: ("the GPU's power controller does not answer", "hardware", _RESET),
    136: ("a link of the GPU could not be trained", "hardware", _RESET),
    137: ("a fault of an NVLink peer's access", "program", _LOOK),
    140: ("an uncorrected memory error", "hardware", _RESET),
    143: ("the GPU could not be initialised", "hardware", _RESET),
    **{code: ("an NVLink error", "hardware", "check NVLink, then reset its GPUs") for code in range(144, 151)},
    154: ("the driver asks for an action: see the message", "consequence", "do what the message asks for"),
    155: ("an NVLink error", "hardware", _RESET),
    156: ("a part of the GPU was retired", "hardware", "let the run go on; reset the GPU when it is done"),
    157: ("a part of the GPU could not be retired", "hardware", _RESET),
    158: ("the GPU timed out for good", "hardware", _RESET),
}  # fmt: skip


_MILD = frozenset({63, 92, 156})
"""What a GPU reports while it works on; beside another code they only say that it has begun to mend itself."""
_UNKNOWN: tuple[str, Whose, str] = ("", "unknown", "")


@dataclass(frozen=True)
class Xid(Located):
    code: int
    bus: str
    """As the line has it: `0000:61:00`, without the function."""
    at: str | None = None
    """As the log has it: a date, or seconds since the host booted."""
    pid: int | None = None
    """The host's number."""
    process: str | None = None
    message: str | None = None
    caused_by: int | None = None
    """The code of the Xid that this one says it follows."""
    switch: bool | None = None
    """An NVLink switch's SXid; None: a GPU's."""
    monitor: bool = field(default=False, metadata=OWN_WORDS)
    """The named process only looks."""
    means: str = field(default="", metadata=OWN_WORDS)
    whose: Whose = field(default="unknown", metadata=OWN_WORDS)
    way_out: str = field(default="", metadata=OWN_WORDS)


@dataclass(frozen=True)
class XidIncident(Located):
    """All that was reported of one GPU."""

    bus: str
    codes: tuple[int, ...]
    """Each once, in the order of their first line."""
    count: int
    first_at: str | None
    last_at: str | None
    pids: tuple[int, ...] = ()
    """All that were named."""
    programs: tuple[int, ...] = ()
    """Those of them that do more than look."""
    way_out: str = field(default="", metadata=OWN_WORDS)


def xid_in(line: Piece) -> Xid | None:
    found = _LINE.search(line.text[:4096])
    if found is None:
        return None
    spans = {"code": line.place(found, "code"), "bus": line.place(found, "bus")}
    values: dict[str, int | str | bool] = {}
    if found["switch"]:
        values["switch"], spans["switch"] = True, line.place(found, "switch")
    if when := _AT.search(line.text[:200]):
        name = when.lastgroup or ""
        values["at"], spans["at"] = when[name].strip(), line.place(when, name)
    if found["message"]:
        values["message"], spans["message"] = found["message"], line.place(found, "message")
        tail = line.cut(found.start("message"), found.end("message"))
        for name, pattern in (("pid", _PID), ("process", _NAME), ("caused_by", _BEFORE)):
            if part := pattern.search(tail.text):
                spans[name] = tail.place(part, part.lastgroup or "")
                said = part[1]
                if said != "<unknown>":
                    values[name] = said if name == "process" else int(said)
    code = int(found["code"])
    # A switch's codes are numbers of their own.
    means, whose, way_out = _UNKNOWN if found["switch"] else CODES.get(code, _UNKNOWN)
    process = str(values.get("process", ""))
    return Xid(
        code,
        found["bus"],
        **values,  # type: ignore[arg-type]
        monitor=bool(process) and process.startswith(MONITORS),
        means=means,
        whose=whose,
        way_out=way_out,
        spans=spans,
    )


def incidents(xids: Iterable[Xid]) -> tuple[XidIncident, ...]:
    """One a GPU, in the order of their first lines."""
    by_bus: dict[str, list[Xid]] = {}
    for xid in xids:
        by_bus.setdefault(xid.bus, []).append(xid)
    return tuple(_incident(bus, events) for bus, events in by_bus.items())


def _incident(bus: str, events: list[Xid]) -> XidIncident:
    whole = Span.over(span for event in events for span in event.spans.values())
    pids = tuple({event.pid: None for event in events if event.pid is not None})
    monitors = {event.pid for event in events if event.monitor}
    codes = tuple({event.code: None for event in events})
    times = [event.at for event in events if event.at is not None]
    roots = [event for event in events if event.whose != "consequence"] or events
    roots.sort(key=lambda event: event.code in _MILD)
    return XidIncident(
        bus=bus,
        codes=codes,
        count=len(events),
        first_at=times[0] if times else None,
        last_at=times[-1] if times else None,
        pids=pids,
        programs=tuple(pid for pid in pids if pid not in monitors and pid > 1),  # 0 and 1 are the system's own
        way_out=roots[0].way_out,
        spans=dict.fromkeys(("bus", "codes", "count", "first_at", "last_at", "pids", "programs"), whole),
    )

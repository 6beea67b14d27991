"""What nvidia-smi, NVML and the driver say when they cannot tell of the GPUs: the kind, what it names, the way out.

Rule: a line is searched, never compared whole: it comes behind prefixes, and wrapped by whoever asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Piece, Span, Value, said_lines
from orchestrator.probes.text import one_line

MAX_LINE = 4096
MAX_TROUBLES = 200
"""That differ. A host has fewer GPUs."""
RESET = "drain the host and reset the GPU, or reboot"
_PROMPT = re.compile(
    r"(?:\([^)\n]{1,40}\) )?\[?[\w.-]{1,40}@[\w.-]{1,80}[ :][^\n,#$%>]{0,200}[#$%>](?: .*)?"
    r"|[^\n,]{0,200}\bnvidia-smi +-.*|(?:[#$%>]|C:\\[^\n,>]{0,100}>)(?: nvidia-smi\b.*)?"
)
_BUS = r"(?P<bus>(?:[0-9A-Fa-f]{3,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9])?)"
_KERNEL_LOG = "look at the host's kernel log: dmesg | grep NVRM"

ACTIONS = {
    "Reset": RESET,
    "Reboot": "drain the host and reboot it",
    "Drain P2P": "let what runs on the GPU end, then ask again",
    "Drain and Reset": RESET,
}
"""What the driver may ask for (`gpu_recovery_action`), and how that is done."""

WAYS_OUT = {
    "driver_library_mismatch": "reload the driver or reboot the host, once nothing uses the GPUs; what runs may go on "
    "until then. In a container: give it the libraries of the host's version",
    "gpu_fell_off_the_bus": "reboot the host; check power, temperature and the PCIe slot",
    "gpu_lost": f"{RESET}; before that: dmesg | grep NVRM",
    "gpu_unreadable": f"{_KERNEL_LOG}; then {RESET}",
    "gpu_needs_reset": RESET,
    "gpu_init_failed": f"{_KERNEL_LOG}; then {RESET}",
    "pcie_error": "check the slot, riser and power of the GPU; if it is corrected by itself and rare, watch it",
    "inforom_corrupted": "the GPU works on; have it looked at by its vendor",
    "no_devices": "check what the container was given: ls /dev/nvidia*; on the host: lspci | grep -i nvidia",
    "bad_query_field": "leave that field out, or ask a newer driver",
    "driver_not_loaded": "on the host: modprobe nvidia; dkms status; is the driver built for this kernel?",
    "library_missing": "give the container the driver's libraries, of the host's version",
    "no_permission": "allow the container the devices: lxc.cgroup2.devices.allow for /dev/nvidia*",
    "devices_taken_away": "restart the container: its GPU devices were taken away, as by a reload of systemd",
    "blocked_by_system": "on the host, check that the GPU is given to Linux and not held by another driver",
    "nvidia_smi_missing": "install the driver's tools",
    "not_supported": "this GPU, or the container, does not tell that; nothing is wrong",
    "fabric_not_ready": "on the host: systemctl status nvidia-fabricmanager; it must be of the driver's own version",
    "timed_out": f"nvidia-smi hangs: {_KERNEL_LOG}",
    "nvml_failed": _KERNEL_LOG,
}

# NVML's return codes, by nvml.h.
CODES = {
    2: "bad_query_field",
    3: "not_supported",
    4: "no_permission",
    6: "gpu_unreadable",
    9: "driver_not_loaded",
    10: "timed_out",
    12: "library_missing",
    15: "gpu_lost",
    16: "gpu_needs_reset",
    17: "blocked_by_system",
    18: "driver_library_mismatch",
}

# The first that is found in a line decides.
_SIGNS: tuple[tuple[str, str], ...] = (
    (
        "driver_library_mismatch",
        r"driver.{1,5}library version mismatch|LibRmVersionMismatch|LIB_RM_VERSION_MISMATCH|NVML/RM version mismatch|"
        r"API mismatch: (?:the )?client (?:has the version |\(version )(?P<library_version>[0-9.]{3,12}[0-9])",
    ),
    ("gpu_fell_off_the_bus", rf"(?:GPU (?:at PCI:)?{_BUS}.{{0,60}})?fallen off the bus"),
    (
        "gpu_lost",
        rf"(?:device handle for gpu ?(?:[0-9]{{1,3}}: )?{_BUS}: )?(?:GPU is lost|GPU_IS_LOST|GPUIsLost|GPU Lost)",
    ),
    ("gpu_needs_reset", rf"(?:device handle for gpu ?{_BUS}: )?(?:GPU requires reset|"
        r"reset required(?! *: *(?!Yes))|RESET_REQUIRED)"),
    (
        "gpu_init_failed",
        rf"BAR[0-9] is 0M @ 0x0(?: \(PCI:{_BUS}\))?",
    ),
    ("fabric_not_ready", r"system not yet initialized|nvidia-fabricmanager.{0,40}(?:failed|not running|inactive)"),
    ("not_supported", r"NVMLError_NotSupported|Not supported on the device\(s\)|^Failed to process command line"),
    ("timed_out", r"NVMLError_Timeout|nvidia-smi\b.{0,40}timed out"),
    ("gpu_init_failed", rf"(?:GPU {_BUS}: )?(?:RmInitAdapter failed|rm_init_adapter\(?\)? failed)"),
    ("inforom_corrupted", rf"infoROM is corrupted(?: at gpu {_BUS})?"),
    (
        "gpu_unreadable",
        rf"device handle for gpu ?(?:[0-9]{{1,3}}: )?{_BUS}: (?P<reason>[^.\n]{{1,80}})",
    ),
    ("no_devices", r"No devices were found|no NVIDIA GPU device is present|No NVIDIA GPU found"),
    ("bad_query_field", r"Field \"(?P<field>[^\"\n]{1,80})\" is not a valid field to query"),
    ("driver_not_loaded", r"couldn't communicate with the NVIDIA driver|driver[_ ]?not[_ ]?loaded"),
    (
        "library_missing",
        r"couldn't find (?P<library>libnvidia-ml\.so\S{0,20}) library|NVML Shared Library Not Found|"
        r"(?P<missing>libnvidia-ml\.so[.0-9]{0,20}): cannot open shared object file|NVMLError_LibraryNotFound",
    ),
    (
        "no_permission",
        r"Failed to initialize NVML: Insufficient Permissions|NVMLError_NoPermission|"
        r"failed because you do not have suf\w{2,8}ent permissions|"
        r"(?P<device>/dev/nvidia[\w-]{0,20})'?: (?:Operation not permitted|Permission denied)",
    ),
    ("nvml_failed", r"UserWarning: Can't initialize NVML"),  # of torch, which goes on without
    ("devices_taken_away", r"Failed to initialize NVML: Unknown Error|NVMLError_Unknown"),
    (
        "blocked_by_system",
        rf"GPU access blocked by the operating system|NVRM: GPU {_BUS} is already bound to (?P<driver>[\w-]{{1,40}})",
    ),
    (
        "nvidia_smi_missing",
        r"nvidia-smi'?: (?:command )?not found|nvidia-smi is not installed|\"nvidia-smi\": executable",
    ),
    ("pcie_error", rf"nvidia {_BUS}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>[\w ()-]{{1,40}})"),
    ("nvml_failed", r"NVML_SUCCESS == \w{1,20}[^\n]{0,20}INTERNAL ASSERT FAILED"),
    ("nvml_failed", r"NVML[^\n]{0,60}?\((?P<code>[0-9]{1,3})\)(?:: ?(?P<reason>[^\n]{1,80}))?"),
    ("nvml_failed", r"NVML[^\n]{0,40}\b(?:error|code|ret(?:urn)?)[ :=]{1,3}(?P<code>[0-9]{1,3})\b"),
    (
        "nvml_failed",
        r"(?:Failed to initialize NVML|NVMLError(?:_\w{1,40})?|nvml error|failed to [a-z ]{0,40}NVML): ?"
        r"(?P<reason>[^\n]{1,80})",
    ),
)  # fmt: skip
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _SIGNS)
_SAID_IN_WORDS = (4, 9, 12, 15, 16, 17, 18)
_SAID_CODE = re.compile(r"NVML[^\n]{0,60}?\((?P<code>[0-9]{1,3})\)", re.IGNORECASE)
_SOURCE = re.compile(r"^(?P<source>[A-Za-z][\w.-]{1,40})(?:\[[0-9]+\])?: ")
_DETAILS = {
    "library_version": re.compile(r"NVML library version: ?(?P<v>[0-9][0-9.]{0,14})", re.IGNORECASE),
    "kernel_module_version": re.compile(r"kernel module has the version (?P<v>[0-9][0-9.]{0,12}[0-9])", re.IGNORECASE),
}
_UNNAMED_GPU = re.compile(rf"The NVIDIA GPU {_BUS}")


def trouble_in(line: Piece) -> Finding | None:
    """What one line says is wrong; None: nothing that is known here."""
    text = line.text[:MAX_LINE]
    for kind, pattern in _COMPILED:
        found = pattern.search(text)
        if found is None:
            continue
        named = {
            name: Value(_number(value), line.place(found, name)) for name, value in found.groupdict().items() if value
        }
        at = line.place(found)
        if "code" in named and kind == "nvml_failed":
            kind = CODES.get(int(str(named["code"].value)), kind)
        elif (code := _code(text, line.start, kind, at)) is not None:
            named["code"] = code
        if source := _SOURCE.match(text):
            named["source"] = Value(source[1], line.place(source, 1))
        return finding_at(line, kind, WAYS_OUT[kind], named, at)
    return None


def _code(text: str, start: int, kind: str, at: Span) -> Value | None:
    """NVML's number of what it said in words; as the line has it, else as nvml.h has it."""
    if found := _SAID_CODE.search(text):
        return Value(int(found["code"]), Span(start + found.start("code"), start + found.end("code")))
    code = next((code for code, its_kind in CODES.items() if its_kind == kind and code in _SAID_IN_WORDS), None)
    return None if code is None else Value(code, at)


def details_in(line: Piece) -> dict[str, Value]:
    """What a line adds to a trouble that another line tells."""
    found = {name: pattern.search(line.text[:MAX_LINE]) for name, pattern in _DETAILS.items()}
    return {name: Value(detail["v"], line.place(detail, "v")) for name, detail in found.items() if detail}


def with_details(troubles: Iterable[Finding], details: Mapping[str, Value]) -> tuple[Finding, ...]:
    """Each trouble once, however often it is said."""
    kind = "driver_library_mismatch"
    merged = [_with(trouble, details) if trouble.kind == kind else trouble for trouble in troubles]
    first: dict[tuple[object, ...], Finding] = {}
    for trouble in merged:
        named = sorted((name, value.value) for name, value in trouble.named.items())
        first.setdefault((trouble.kind, *named), trouble)
    once = list(first.values())[:MAX_TROUBLES]
    return tuple(trouble for number, trouble in enumerate(once) if not _said_before(trouble, once[:number]))


def troubles_in(lines: Iterable[Piece]) -> tuple[Finding, ...]:
    """With what the lines around each add."""
    found: list[Finding] = []
    details: dict[str, Value] = {}
    gpu: Value | None = None
    for line in lines:
        details = {**details_in(line), **details}
        if unnamed := _UNNAMED_GPU.search(line.text[:MAX_LINE]):
            gpu = Value(unnamed["bus"], line.place(unnamed, "bus"))
        trouble = trouble_in(line)
        if trouble is not None:
            lacks = trouble.kind == "gpu_fell_off_the_bus" and "bus" not in trouble.named
            found.append(_with(trouble, {"bus": gpu}) if lacks and gpu is not None else trouble)
    return with_details(found, details)


def with_way_out(said: str) -> str:
    """On one line, for a status: what was said and, where it is a known trouble, what helps."""
    troubles = troubles_in(said_lines(said))
    return f"{one_line(said)}: {troubles[0].way_out}" if troubles else one_line(said)


def _said_before(trouble: Finding, before: Iterable[Finding]) -> bool:
    """It names nothing that an earlier one of its kind does not name too."""
    mine = {name: value.value for name, value in trouble.named.items()}
    return any(
        mine.items() <= {name: value.value for name, value in other.named.items()}.items()
        for other in before
        if other.kind == trouble.kind
    )


def _with(trouble: Finding, more: Mapping[str, Value]) -> Finding:
    named = {**more, **trouble.named}
    return Finding(trouble.kind, trouble.said, named, trouble.way_out, spans=trouble.spans)


def _number(text: str) -> str | int:
    return int(text) if text.isdecimal() and len(text) < 10 else text


def is_prompt(line: Piece) -> bool:
    """A shell's, with the command or without: copied along from a terminal."""
    return _PROMPT.fullmatch(line.text[:MAX_LINE].strip()) is not None

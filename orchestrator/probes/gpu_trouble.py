"""What nvidia-smi, NVML and the driver say when they cannot tell of the GPUs: the kind, what it names, the way out.

Rule: a line is searched, never compared whole: it comes behind prefixes, and wrapped by whoever asked.
"""

from __future__ import annotations

import re

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Piece, Span, Value

MAX_LINE = 4096
_BUS = r"(?P<bus>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9])?)"
_RELOAD = "reload the driver or reboot the host, once nothing uses the GPUs; what runs on them may go on until then"
RESET = "drain the host and reset the GPU, or reboot"

# The first that is found in a line decides.
_SIGNS: tuple[tuple[str, str, str], ...] = (
    (
        "driver_library_mismatch",
        r"[Dd]river/library version mismatch|[Dd]river and library versions? mismatch|LIB_RM_VERSION_MISMATCH",
        _RELOAD,
    ),
    (
        "driver_library_mismatch",
        r"API mismatch: (?:the )?client (?:has the version|\(?version) (?P<library_version>[0-9.]+)",
        _RELOAD,
    ),
    ("gpu_fell_off_the_bus", rf"(?:GPU (?:at PCI:)?{_BUS}.{{0,80}})?[Ff]allen off the bus", RESET),
    (
        "gpu_lost",
        rf"(?:[Uu]nable to determine the device handle for (?:GPU|gpu) ?(?:[0-9]+: )?{_BUS}: )?"
        r"(?:GPU is lost|GPU_IS_LOST|GPU Lost)",
        RESET,
    ),
    (
        "gpu_unreadable",
        rf"[Uu]nable to determine the device handle for (?:GPU|gpu) ?(?:[0-9]+: )?{_BUS}: (?P<reason>[^.\n]{{1,80}})",
        f"look at the host's kernel log (dmesg | grep NVRM), then: {RESET}",
    ),
    (
        "no_devices",
        r"No devices were found|no NVIDIA GPU device is present",
        "check the container's devices: ls /dev/nvidia*",
    ),
    (
        "bad_query_field",
        r"Field \"(?P<field>[^\"\n]{1,80})\" is not a valid field to query",
        "leave that field out, or ask a newer driver",
    ),
    (
        "driver_not_loaded",
        r"couldn't communicate with the NVIDIA driver|Driver Not Loaded|DRIVER_NOT_LOADED",
        "on the host: modprobe nvidia; dkms status; is the driver built for this kernel?",
    ),
    (
        "library_missing",
        r"couldn't find (?P<library>libnvidia-ml\.so\S*) library|NVML Shared Library Not Found|LIBRARY_NOT_FOUND"
        r"|(?P<missing>libnvidia-ml\.so[.0-9]*): cannot open shared object file",
        "give the container the driver's libraries, of the host's version",
    ),
    (
        "no_permission",
        r"Failed to initialize NVML: Insufficient Permissions|NO_PERMISSION|"
        r"nvidia\S*:? .{0,40}(?:Operation not permitted|Permission denied)",
        "allow the container the devices: lxc.cgroup2.devices.allow for /dev/nvidia*",
    ),
    (
        "devices_taken_away",
        r"Failed to initialize NVML: Unknown Error",
        "the container has lost its GPU devices (a reload of systemd on the host does that): restart the container",
    ),
    (
        "blocked_by_system",
        r"GPU access blocked by the operating system",
        "on the host, check that the GPU is given to Linux and not held by another driver",
    ),
    (
        "nvidia_smi_missing",
        r"nvidia-smi: (?:command )?not found|nvidia-smi is not installed",
        "install the driver's tools",
    ),
    (
        "nvml_failed",
        r"NVML[^\n]{0,60}?\((?P<code>[0-9]{1,3})\): ?(?P<reason>[^\n]{1,80})",
        "dmesg | grep NVRM, on the host",
    ),
    (
        "nvml_failed",
        r"(?:Failed to initialize NVML|NVMLError(?:_\w+)?|nvml error|[Ff]ailed to [a-z ]{0,40}NVML): ?"
        r"(?P<reason>[^\n]{1,80})",
        "dmesg | grep NVRM, on the host",
    ),
)
_COMPILED = tuple((kind, re.compile(pattern), way_out) for kind, pattern, way_out in _SIGNS)


def trouble_in(line: Piece) -> Finding | None:
    """What one line says is wrong; None: nothing that is known here."""
    text = line.text[:MAX_LINE]
    for kind, pattern, way_out in _COMPILED:
        found = pattern.search(text)
        if found is None:
            continue
        named = {
            name: Value(_number(value), Span(line.start + found.start(name), line.start + found.end(name)))
            for name, value in found.groupdict().items()
            if value
        }
        at = Span(line.start + found.start(), line.start + found.end())
        return finding_at(line, kind, way_out, named, at)
    return None


def _number(text: str) -> str | int:
    return int(text) if text.isdecimal() and len(text) < 10 else text

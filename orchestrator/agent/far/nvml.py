"""The GPUs as NVML tells of them: a program of its own that says one JSON line a look. Standard library only.

    python3 nvml.py [--interval S] [--count N] [--library PATH] [--leashed]

Rule: it asks and judges nothing. Each value stands alone: what the driver does not answer is null with NVML's code
beside it, and a GPU that is lost costs no other GPU its facts. It may hang or crash in the driver: whoever started it
sees to that. With --leashed it ends when its stdin does, also while a call hangs.

A line: {"nvml": 1, "driver", "version", "gpus": [...], "took_s"} or {"nvml": 1, "error": {...}} and the end.
A GPU: the values of SLOW and FAST by name, "codes": {name: NVML's code}, "error": null or {call, code, text}.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from ctypes import byref, c_char, c_char_p, c_uint, c_ulonglong, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

LIBRARY = "libnvidia-ml.so.1"
FORMAT = 1
SLOW_LOOKS = 30
"""What hardly ever changes is asked once in so many looks; then lost GPUs are looked for again, too."""
GONE = (15, 16)
"""GPU is lost; requires reset: nothing more can be had of this one."""
NOT_SUPPORTED, NOT_FOUND, TOO_SMALL, NO_FUNCTION = 3, 6, 7, 13
ABSENT_BYTES = 2**64 - 1
MAX_PROCESSES = 4096
GRAPHICS, SM, MEMORY = 0, 1, 2


class NvmlError(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__("%s: NVML code %d" % (call, code))
        self.call = call
        self.code = code


class Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class MemoryV2(ctypes.Structure):
    """In this one `used` is without what the driver reserves, as nvidia-smi shows it."""

    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("id", c_uint),
        ("subsystem", c_uint),
        ("name", c_char * 32),
    ]


class ProcessV1(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong)]


class ProcessV2(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("instance", c_uint), ("compute_instance", c_uint)]


class Library:
    """NVML's functions, by name, the newest first. Raises OSError where there is no such library."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._found: Dict[str, Any] = {}

    def call(self, names: str, *arguments: Any) -> None:
        """names: `nvmlInit_v2 nvmlInit`; the first that the library has is called. Raises NvmlError."""
        function = self._found.get(names)
        if function is None:
            known = (getattr(self._library, name, None) for name in names.split())
            function = self._found[names] = next((one for one in known if one is not None), missing)
        code = function(*arguments)
        if code:
            raise NvmlError(names.split()[0], code)

    def text(self, code: int) -> str:
        try:
            function = self._library.nvmlErrorString
        except AttributeError:
            return "NVML code %d" % code
        function.restype = c_char_p
        return plain(function(code) or b"") or "NVML code %d" % code

    def has(self, name: str) -> bool:
        return hasattr(self._library, name)

    def number(self, names: str, *arguments: Any) -> int:
        found = c_uint()
        self.call(names, *arguments, byref(found))
        return found.value

    def string(self, names: str, size: int, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(size)
        self.call(names, *arguments, buffer, c_uint(size))
        return plain(buffer.value)


def missing(*arguments: Any) -> int:
    return NO_FUNCTION


def plain(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def name(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    return {"name": nvml.string("nvmlDeviceGetName", 96, gpu)}


def uuid(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    return {"uuid": nvml.string("nvmlDeviceGetUUID", 96, gpu)}


def bus(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    pci = Pci()
    nvml.call("nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfo_v2", gpu, byref(pci))
    return {"bus": plain(pci.name) or plain(pci.legacy)}


def number(field: str, call: str, *arguments: int) -> Callable[[Library, c_void_p], Dict[str, Any]]:
    def ask(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
        return {field: nvml.number(call, gpu, *map(c_uint, arguments))}

    return ask


def first_of_two(field: str, call: str) -> Callable[[Library, c_void_p], Dict[str, Any]]:
    """For calls that give what is and what will be after a restart."""

    def ask(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
        pending = c_uint()
        found = c_uint()
        nvml.call(call, gpu, byref(found), byref(pending))
        return {field: found.value}

    return ask


def errors(field: str, kind: int) -> Callable[[Library, c_void_p], Dict[str, Any]]:
    """ECC errors since the driver was loaded; kind: 0 corrected, 1 uncorrected."""

    def ask(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
        found = c_ulonglong()
        nvml.call("nvmlDeviceGetTotalEccErrors", gpu, c_uint(kind), c_uint(0), byref(found))
        return {field: found.value}

    return ask


def memory(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    second = MemoryV2(ctypes.sizeof(MemoryV2) | 2 << 24)
    try:
        nvml.call("nvmlDeviceGetMemoryInfo_v2", gpu, byref(second))
        return {"memory_total_bytes": second.total, "memory_used_bytes": second.used}
    except NvmlError as error:
        if error.code in GONE:
            raise
    first = Memory()
    nvml.call("nvmlDeviceGetMemoryInfo", gpu, byref(first))
    return {"memory_total_bytes": first.total, "memory_used_bytes": first.used}


def utilization(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    found = Utilization()
    nvml.call("nvmlDeviceGetUtilizationRates", gpu, byref(found))
    return {"utilization_percent": found.gpu, "memory_utilization_percent": found.memory}


def throttle(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    found = c_ulonglong()
    nvml.call("nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons", gpu, byref(found))
    return {"throttle_bits": found.value}


def processes(nvml: Library, gpu: c_void_p) -> Dict[str, Any]:
    """[[pid, bytes or null], ...]"""
    names, kind = "nvmlDeviceGetComputeRunningProcesses", ProcessV1
    for version in ("_v3", "_v2"):
        if nvml.has(names + version):
            names, kind = names + version, ProcessV2  # type: ignore[assignment]
            break
    room = 64
    while True:
        count = c_uint(room)
        rows = (kind * room)()
        try:
            nvml.call(names, gpu, byref(count), rows)
        except NvmlError as error:
            if error.code != TOO_SMALL or room >= MAX_PROCESSES:
                raise
            room = min(MAX_PROCESSES, max(count.value + 16, room * 2))
            continue
        seen = [rows[index] for index in range(min(count.value, room))]
        return {"processes": [[one.pid, None if one.used == ABSENT_BYTES else one.used] for one in seen]}


SLOW: Tuple[Tuple[Tuple[str, ...], Any], ...] = (
    (("name",), name),
    (("uuid",), uuid),
    (("bus",), bus),
    (("power_limit_mw",), number("power_limit_mw", "nvmlDeviceGetPowerManagementLimit")),
    (("sm_clock_max_mhz",), number("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", SM)),
    (("mig_mode",), first_of_two("mig_mode", "nvmlDeviceGetMigMode")),
)
"""Names of the values, and who asks for them."""
FAST: Tuple[Tuple[Tuple[str, ...], Any], ...] = (
    (("memory_total_bytes", "memory_used_bytes"), memory),
    (("utilization_percent", "memory_utilization_percent"), utilization),
    (("temperature_c",), number("temperature_c", "nvmlDeviceGetTemperature", GRAPHICS)),
    (("power_mw",), number("power_mw", "nvmlDeviceGetPowerUsage")),
    (("sm_clock_mhz",), number("sm_clock_mhz", "nvmlDeviceGetClockInfo", SM)),
    (("memory_clock_mhz",), number("memory_clock_mhz", "nvmlDeviceGetClockInfo", MEMORY)),
    (("performance_state",), number("performance_state", "nvmlDeviceGetPerformanceState")),
    (("throttle_bits",), throttle),
    (("ecc_corrected",), errors("ecc_corrected", 0)),
    (("ecc_uncorrected",), errors("ecc_uncorrected", 1)),
    (("processes",), processes),
)


class Gpu:
    """One GPU, and what is remembered of it."""

    def __init__(self, nvml: Library, index: int) -> None:
        self._nvml = nvml
        self._index = index
        self._handle: c_void_p | None = None
        self._slow: Dict[str, Any] = {}
        self._slow_codes: Dict[str, int] = {}
        self._unsupported: set[Any] = set()
        """What it will never answer is not asked again at each look."""

    def look(self, *, slow: bool) -> Dict[str, Any]:
        try:
            if self._handle is None:
                handle = c_void_p()
                self._nvml.call(
                    "nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex", c_uint(self._index), byref(handle)
                )
                self._handle = handle
            if slow or not self._slow:
                self._slow, self._slow_codes = self._ask(SLOW)
            fast, codes = self._ask(FAST)
        except NvmlError as error:
            self._handle = None
            told = {"call": error.call, "code": error.code, "text": self._nvml.text(error.code)}
            return dict(self._slow, index=self._index, codes={}, error=told)
        return dict(self._slow, **fast, index=self._index, codes=dict(self._slow_codes, **codes), error=None)

    def _ask(self, table: Any) -> Tuple[Dict[str, Any], Dict[str, int]]:
        """Raises NvmlError when it is the whole GPU that does not answer."""
        found: Dict[str, Any] = {}
        codes: Dict[str, int] = {}
        for names, ask in table:
            try:
                if ask in self._unsupported:
                    raise NvmlError("", NOT_SUPPORTED)
                found.update(ask(self._nvml, self._handle))
            except NvmlError as error:
                if error.code in GONE:
                    raise
                if error.code == NOT_SUPPORTED:
                    self._unsupported.add(ask)
                found.update(dict.fromkeys(names))
                codes.update(dict.fromkeys(names, error.code))
        return found, codes


def follow(say: Callable[[Dict[str, Any]], None], path: str, interval_s: float, count: int | None) -> int:
    """One line a look, `count` looks (None: for ever). Returns the exit code."""
    try:
        nvml = Library(path)
    except OSError as error:
        say({"nvml": FORMAT, "error": {"call": "dlopen", "code": None, "text": str(error)}})
        return 2
    looks = 0
    due = time.monotonic()
    while True:
        try:
            nvml.call("nvmlInit_v2 nvmlInit")
            driver = nvml.string("nvmlSystemGetDriverVersion", 96)
            version = nvml.string("nvmlSystemGetNVMLVersion", 96)
            number_of_gpus = nvml.number("nvmlDeviceGetCount_v2 nvmlDeviceGetCount")
        except NvmlError as error:
            told = {"call": error.call, "code": error.code, "text": nvml.text(error.code)}
            say({"nvml": FORMAT, "error": told, "library": mapped_library(), "control_node": control_node()})
            return 3
        gpus = [Gpu(nvml, index) for index in range(number_of_gpus)]
        for look in range(1 << 62):
            began = time.monotonic()
            told_gpus = [gpu.look(slow=look % SLOW_LOOKS == 0) for gpu in gpus]
            took_s = round(time.monotonic() - began, 4)
            say({"nvml": FORMAT, "driver": driver, "version": version, "gpus": told_gpus, "took_s": took_s})
            looks += 1
            if count is not None and looks >= count:
                return 0
            due = max(due + interval_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            if look % SLOW_LOOKS == SLOW_LOOKS - 1 and any(gpu["error"] for gpu in told_gpus):
                break  # a GPU that came back is seen only by who starts anew
        nvml.call("nvmlShutdown")


def mapped_library() -> str | None:
    """The file that was loaded, whose name holds its version."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if "libnvidia-ml" in line:
                    return line.split(None, 5)[-1].strip()
    except OSError:
        pass
    return None


def control_node() -> str | None:
    """Why the driver's control node cannot be opened, in one word (EPERM: the cgroup forbids it); None: it can."""
    import errno

    try:
        os.close(os.open("/dev/nvidiactl", os.O_RDWR))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return None


def say_line(record: Dict[str, Any]) -> None:
    data = json.dumps(record, separators=(",", ":")).encode("utf-8") + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        os._exit(0)  # nobody listens any more


def end_with_stdin() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    os._exit(0)


def main(words: List[str]) -> int:
    options = {"--interval": "1", "--count": "", "--library": LIBRARY}
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--leashed":
            threading.Thread(target=end_with_stdin, daemon=True).start()
        elif word in options and words:
            options[word] = words.pop(0)
        else:
            sys.stderr.write("nvml.py [--interval S] [--count N] [--library PATH] [--leashed]\n")
            return 2
    count = int(options["--count"]) if options["--count"] else None
    return follow(say_line, options["--library"], float(options["--interval"]), count)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What the host's kernel said of its GPUs since it booted: NVRM's Xid lines, a sentence for each GPU.

Rule: pure. The process that a line names is never called the cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.spans import said_lines
from orchestrator.probes.text import one_line
from orchestrator.probes.xid import Xid, incidents, xid_in

MAX_LINES = 200
_SCRIPT = (
    'said=$("$1" 2>&1) || { printf "%s\\n" "$said" >&2; exit 1; }; '
    f'printf "%s\\n" "$said" | grep -aE "NVRM|Xid [(]" | tail -n {MAX_LINES}; exit 0'
)


def kernel_log_argv(dmesg: str = "dmesg") -> list[str]:
    """For the host: the last MAX_LINES lines of the driver. Exit code 1: it may not be read."""
    return ["sh", "-c", _SCRIPT, "sh", dmesg]


def kernel_sentences(text: str, gpus: Sequence[GpuFact]) -> tuple[str, ...]:
    """text: what kernel_log_argv printed. Empty: no Xid."""
    found = [xid for line in said_lines(text) if (xid := xid_in(line)) is not None]
    by_bus = {place: gpu.index for gpu in gpus if (place := _place(gpu.bus or "")) is not None}
    said = []
    for incident in incidents(found):
        of_it = [xid for xid in found if xid.bus == incident.bus]
        index = by_bus.get(_place(incident.bus) or "")
        name = incident.bus if index is None else f"GPU {index} ({incident.bus})"
        times = f" {incident.count} times" if incident.count > 1 else ""
        last = f", last at {incident.last_at}" if incident.last_at else ""
        text = f"{name}: the host's kernel reported {_codes(of_it)}{times}{last}"
        said.append(one_line(f"{text}: {incident.way_out}" if incident.way_out else text, 400))
    return tuple(said)


def _codes(xids: Sequence[Xid]) -> str:
    each = {xid.code: xid for xid in xids}
    return ", ".join(
        f"{'SXid' if xid.switch else 'Xid'} {code}" + (f" ({xid.means})" if xid.means else "")
        for code, xid in each.items()
    )


def _place(bus: str) -> str | None:
    """`00000000:5D:00.0` and `0000:5d:00` are one place. None: it is none."""
    parts = bus.lower().partition(".")[0].split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    if len(parts) != 3 or not all(parts):
        return None
    return ":".join([parts[0].lstrip("0") or "0", *parts[1:]])

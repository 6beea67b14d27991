"""ssh, pct, clock: can the target be reached, and does its clock agree with ours?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.diagnosis.case import Case
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING, Finding
from orchestrator.probes.units import duration_text

CLOCK_INFO_S = 5.0
"""Less is what an answer takes on its way."""
CLOCK_S = 120.0
"""Ages and times left are wrong by it; tokens and certificates stop being valid at some minutes."""
CAUSES = {
    "ssh": "the host, the network or the login; nothing is known of the target itself",
    "pct": "the host answers, the container does not",
}


def unreachable(case: Case) -> Iterator[Finding]:
    link = case.link
    if link is not None:
        step, _, more = link.way_out.partition("\n")
        command = next((line.strip() for line in link.way_out.splitlines() if line.strip().startswith("orch ")), None)
        evidence = tuple(line for line in (*link.evidence.splitlines(), *more.splitlines()) if line.strip())
        yield Finding(link.part, CRITICAL, link.what, evidence, CAUSES[link.part], step or "orch exec -- true", command)


def clock(case: Case) -> Iterator[Finding]:
    offset_s = case.clock_offset_s
    if offset_s is None or abs(offset_s) < CLOCK_INFO_S:
        return
    side = "ahead of" if offset_s > 0 else "behind"
    yield Finding(
        "clock",
        WARNING if abs(offset_s) >= CLOCK_S else INFO,
        f"the target's clock is {duration_text(abs(offset_s))} {side} this machine's",
        (f"offset {offset_s:+.0f} s; less than {CLOCK_INFO_S:.0f} s is taken for the same",),
        "one of the two is not kept by a time server",
        "let a time server keep both clocks (the container has its host's)",
        case.orch("exec", "--", "timedatectl"),
    )

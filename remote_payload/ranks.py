"""One process a device: which processes a run has, and what their ends say of it.

Rule: pure, standard library only. Ranks are numbered targets first, then drafters; the first drafter leads: it writes
the records and the checkpoints.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

import contract

EXIT_PEER_LOST = 70
"""Of a rank: another one went away. The cause is there, not here."""
EXIT_LEADER_TELLS = 71
"""Of a rank that is no leader: it ended for a reason that the leader knows and reports."""
EXIT_PART_DONE = 72
"""Of a rank that is no leader, in order. Not 0: some library's `exit(0)` is no end of a training."""

ENDS_OF_A_RUN = (
    contract.EXIT_OK,
    contract.EXIT_BAD_CONFIG,
    contract.EXIT_STOPPED_WITH_CHECKPOINT,
    contract.EXIT_STOPPED_EMPTY_HANDED,
)
"""Exit codes of the leader that are the run's."""


IN_ORDER = (None, EXIT_PEER_LOST, EXIT_LEADER_TELLS, EXIT_PART_DONE)
"""What tells of no fault in that very rank, unless it leads."""


@dataclass(frozen=True)
class Rank:
    number: int
    role: str
    """target or drafter"""
    index: int
    """Among those of its role."""
    device: str
    """As the machine numbers it; in the rank itself every GPU is cuda:0."""
    visible: Optional[str] = None
    """Its CUDA_VISIBLE_DEVICES. None: there is none."""

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def leads(self) -> bool:
        return self.role == "drafter" and self.index == 0


def ranks_of(targets: int, drafters: int, *, on_gpus: bool, visible: Optional[str] = None) -> List[Rank]:
    """visible: this process's own CUDA_VISIBLE_DEVICES, whose entries are dealt out in order."""
    seen = [word.strip() for word in visible.split(",")] if visible else []
    ranks = []
    for number in range(targets + drafters):
        role, index = ("target", number) if number < targets else ("drafter", number - targets)
        if on_gpus:
            own = seen[number] if seen else str(number)
            ranks.append(Rank(number, role, index, f"cuda:{number}", own))
        else:
            ranks.append(Rank(number, role, index, "cpu"))
    return ranks


def environment_of(rank: Rank, inherited: Mapping[str, str]) -> Dict[str, str]:
    """What its process starts with. Everything stays on the machine: connections are made over loopback."""
    made = dict(inherited)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        made.setdefault(name, "lo")
    if rank.visible is not None:
        made["CUDA_VISIBLE_DEVICES"] = rank.visible
    return made


@dataclass(frozen=True)
class Verdict:
    """The run is over."""

    code: int
    culprit: Optional[Rank]
    """Whose end it was. None: it ended in order, or as the leader has told itself."""
    at_once: bool
    """False: others may be on their way out with a better reason; look again a little later."""


def judge(codes: Mapping[Rank, Optional[int]]) -> Optional[Verdict]:
    """codes: how each process has ended, as Popen.returncode says it. None: nothing to end the run for."""
    of_leader = next(code for rank, code in codes.items() if rank.leads)
    if of_leader in ENDS_OF_A_RUN:
        return Verdict(of_leader, None, at_once=True)
    killed = [rank for rank, code in codes.items() if code is not None and code < 0]
    if killed:
        return Verdict(contract.EXIT_FAILED, killed[0], at_once=True)
    if of_leader == contract.EXIT_FAILED:
        return Verdict(contract.EXIT_FAILED, None, at_once=True)
    by_itself = [rank for rank, code in codes.items() if code not in IN_ORDER]
    bereft = [rank for rank, code in codes.items() if code == EXIT_PEER_LOST]
    if by_itself or bereft:
        return Verdict(contract.EXIT_FAILED, (by_itself or bereft)[0], at_once=False)
    return None


def ending(code: int) -> str:
    """As a sentence goes on after a rank's name."""
    if code == 0:
        return "ended before its part was done (exit code 0)"
    if code > 0:
        return f"failed (exit code {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": by hand, or by the kernel when memory ran out" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def describe(rank: Rank, pid: int) -> str:
    return f"{rank.name} (rank {rank.number}, pid {pid}, {rank.device})"


def pair_order(targets: int, drafters: int) -> List[Tuple[int, int]]:
    """(target, drafter), in the one order in which all ranks make their connections."""
    return [(target, drafter) for target in range(targets) for drafter in range(drafters)]

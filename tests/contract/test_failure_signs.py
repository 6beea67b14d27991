"""What a run died of, wherever its log says so: as the agent hands it on and the status tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.agent.far import past, signs
from orchestrator.agent.far.failure import PIECE_BYTES
from orchestrator.reports.status import Failure
from orchestrator.reports.status_facts import GpuWord, status_report
from tests.unit.facts import TARGET

STEPS = "step 5 loss 1.25\n"
HEAD = "Traceback (most recent call last):\n"
NOISE = "WARNING cleaning up rank 3\n"
SEGFAULT = "/root/run.sh: line 12: 12345 Segmentation fault      (core dumped) python train.py\n"
OOM = (
    HEAD + '  File "/root/train.py", line 210, in <module>\n    main()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 GiB.\n"
)
WATCHDOG = (
    "[rank5]:[E1129 10:00:00.1 ProcessGroupNCCL.cpp:684] [Rank 5] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1234, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600012 milliseconds.\n"
)


def much(line: str, size: int = 5 * PIECE_BYTES // 4) -> str:
    return line * (size // len(line))


def failure(tmp_path: Path, log: str, code: int = 1) -> Failure:
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    (folder / "exit.json").write_text(json.dumps({"exit_code": code, "ended_at": 5.0}))
    (folder / "run.log").write_text(log)
    told = past.last_failure(str(tmp_path), ["r1"], [])
    assert told is not None
    assert len(json.dumps(told)) < 3 * PIECE_BYTES
    found = status_report(TARGET, {"failure": told}, b"", GpuWord(None, None, None)).failure
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("log", "kind", "raised"),
    [
        (much(STEPS) + SEGFAULT + much(NOISE), "segfault", None),
        (
            much(STEPS) + OOM + much(NOISE) + HEAD + "  File 'x.py', line 1\nRuntimeError: rank 3 went away\n",
            "cuda_oom",
            1,
        ),
        (much(STEPS) + OOM + much(NOISE) + WATCHDOG + much(NOISE), "cuda_oom", 1),
        (OOM + "skipping batch, resuming\n" + much(STEPS) + much(NOISE) + "Killed\n", "killed", None),
        (much(OOM) + much(NOISE), "cuda_oom", 1),
        (much(STEPS) + much(NOISE), None, None),
    ],
    ids=["no-traceback", "first-of-two", "before-a-watchdog", "survived-then-killed", "thousands", "none"],
)
def test_the_cause_is_found_wherever_it_stands(tmp_path: Path, log: str, kind: str | None, raised: int | None) -> None:
    found = failure(tmp_path, log)
    assert found.kind == kind
    assert (found.exception is not None) == bool(raised) or kind == "killed"


def test_words_are_found_at_every_place_of_a_piece(tmp_path: Path) -> None:
    path = tmp_path / "log"
    word = b"CUDA error: an illegal memory access was encountered"
    for at in (0, PIECE_BYTES - 30, PIECE_BYTES - len(b"CUDA error"), PIECE_BYTES, 2 * PIECE_BYTES - 1):
        path.write_bytes(b"." * at + word + b"\n" + b"." * PIECE_BYTES)
        with path.open("rb") as stream:
            assert word in signs.rows_around(stream.fileno(), path.stat().st_size), at
            assert signs.rows_around(stream.fileno(), at) == b""

"""How fast a training's log is read, in one pass, beside what only looks at its bytes.   python benches/log_reading.py

100 MB of what trainings print (torchtitan, tqdm, HF Trainer; a traceback of 300 frames in the midst), in memory; and a
log whose lines all differ. By CPU time, so that a busy machine hurts little. Where the time goes: --profile.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from compare import publish

from orchestrator.probes.log_reading import NEEDLES, read_log_pieces
from orchestrator.probes.log_scan import LogScan

MEGABYTES = 100
ROUNDS = 3
PIECE = 1024 * 1024
AIM_MB_S = 200
TITAN = (
    "[rank0]:[titan] 2025-03-12 11:10:{:02},511 - root - INFO - step: {}  loss:  {:.4f}  tps: 193,{:03}  mfu: 1.86%\n"
)
BAR = "\r  6%|▋         | {}/13980000 [1:31:02<25:44:02, {:.2f}s/it]"
METRICS = "{{'loss': {:.4f}, 'grad_norm': {:.6f}, 'learning_rate': {:.3e}, 'epoch': 0.03}}\n"
FAILURE = (
    "Traceback (most recent call last):\n"
    + "".join(f'  File "/srv/train.py", line {n}, in f{n}\n    g()\n' for n in range(300))
    + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has 79.11 GiB\n"
)


def training_log() -> bytes:
    return _filled(_steps(), MEGABYTES)


def _steps() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield TITAN.format(number % 60, number, 5 + number % 97 / 97, number % 1000)
        if number % 3 == 0:
            yield BAR.format(number, number % 70 / 3)
        if number % 10 == 0:
            yield METRICS.format(1 + number % 9 / 3, number % 11 / 7, 1 / (number + 1))


def words_log() -> bytes:
    """Text: no line is like another. A fifth of the size: it is slow."""
    words = [f"{'abcdefghij'[n % 10] * (n % 5 + 2)}{n:x}" for n in range(2000)]
    chance = random.Random(1)
    return _filled((" ".join(chance.choices(words, k=12)) + "\n" for _ in iter(int, 1)), MEGABYTES // 5)


def _filled(lines: Iterator[str], megabytes: int) -> bytes:
    pieces, size, wanted = [], 0, megabytes * 1_000_000
    for line in lines:
        piece = line.encode()
        if size < wanted / 2 <= size + len(piece):
            piece += b"\n" + FAILURE.encode()
        pieces.append(piece)
        size += len(piece)
        if size >= wanted:
            return b"".join(pieces)
    raise AssertionError("lines never end")


def pieces_of(log: bytes) -> Iterator[bytes]:
    return (log[begin : begin + PIECE] for begin in range(0, len(log), PIECE))


def scan(log: bytes) -> None:
    scanner = LogScan(NEEDLES)
    for piece in pieces_of(log):
        scanner.feed(piece)


def read(log: bytes) -> None:
    reading = read_log_pieces(pieces_of(log))
    assert [failure.kind for failure in reading.failures] == ["cuda_oom"], "the failure in the midst was not found"


CASES: dict[str, Callable[[bytes], object]] = {
    "count b'Traceback'": lambda log: sum(piece.count(b"Traceback") for piece in pieces_of(log)),
    "decode and split into lines": lambda log: [
        piece.decode("utf-8", "replace").split("\n") for piece in pieces_of(log)
    ],
    "find what is worth reading": scan,
    "the whole reading": read,
}


def main() -> None:
    logs = {"training": training_log(), "every line differs": words_log()}
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.runcall(read, logs["training"])
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)
        return
    rows = ["| log | case | MB/s of CPU (median) | min - max | aim |", "|---|---|---|---|---|"]
    for name, log in logs.items():
        speeds: dict[str, list[float]] = {case: [] for case in CASES}
        for _ in range(ROUNDS):
            for case, run in CASES.items():
                begin = time.process_time()
                run(log)
                speeds[case].append(len(log) / 1e6 / (time.process_time() - begin))
        for case, found in speeds.items():
            aim = f"{AIM_MB_S}" if case == "the whole reading" and name == "training" else ""
            low, high = min(found), max(found)
            rows.append(f"| {name} | {case} | {statistics.median(found):.0f} | {low:.0f} - {high:.0f} | {aim} |")
    publish("Reading logs", "python benches/log_reading.py", "\n".join(rows))


if __name__ == "__main__":
    main()

"""Runs of the trainer for a benchmark: started with what they need, watched through their records, ended, judged."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests/gpu"), str(PROJECT / "remote_payload")]

import contract  # noqa: E402
import record  # noqa: E402
import two_gpus  # noqa: E402

START_S = {False: 240.0, True: 120.0}
"""The first step must be done by then; [True]: of the small shapes."""
LOOK_S = 0.2
FX_ERROR = "FX to symbolically trace"
COMPILED_BY = re.compile(
    r"compiled by process (\d+) of the drafters: (\d+) graphs, (\d+) found in the cache, (\d+) not"
)
COMPILING = re.compile(r"compiling \d+ of \d+: .* on (\S+)")


@dataclass
class Bench:
    folder: Path
    tiny: bool
    gpus: int
    splits: tuple[tuple[int, int], ...]
    made: list[int] = field(default_factory=list)

    def job(self, split: tuple[int, int], engine: str, *, cache: str, **changes: Any) -> Job:
        """cache: the name of a compile cache of this bench."""
        number = len(self.made)
        self.made.append(number)
        device = "cuda" if self.gpus else "cpu"
        settings = {**two_gpus.settings(self.tiny), "engine": engine, "device": device, "steps": 100_000, **changes}
        run = two_gpus.run_folder(
            self.folder,
            f"run-{os.getpid()}-{number}",
            settings=settings,
            targets=split[0],
            drafters=split[1],
            data=str(self.folder / "data.jsonl"),
            model=str(self.folder / "model"),
        )
        return Job(run, self.folder / cache, self)

    def shares_a_gpu(self, split: tuple[int, int]) -> bool:
        """Then it is one process: a GPU of its own is what the engine of processes gives each role."""
        return 0 < self.gpus < sum(split)

    def start_deadline_s(self) -> float:
        return START_S[self.tiny]


@dataclass
class Job:
    run: Path
    cache: Path
    bench: Bench
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    def start(self) -> None:
        variables = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache / "inductor"),
            "TRITON_CACHE_DIR": str(self.cache / "triton"),
            contract.RUN_DIR_VARIABLE: str(self.run),
            "PYTHONUNBUFFERED": "1",
        }
        self.began = time.monotonic()
        with (self.run / contract.RUN_LOG).open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(two_gpus.PAYLOAD / "train.py")],
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def end(self) -> None:
        """By SIGKILL: the ranks go with their supervisor."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def until(self, come: Callable[[], bool], within_s: float) -> bool:
        """False: it did not come, or the run ended first."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            if come():
                return True
            if self.code() is not None:
                return come()
            time.sleep(LOOK_S)
        return False

    def until_steps(self, count: int, within_s: float) -> bool:
        return self.until(lambda: len(self.lines()) >= count, within_s)

    def lines(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = two_gpus.metrics(self.run)
        return told

    def status(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads((self.run / contract.STATUS).read_text())
        except (OSError, ValueError):
            return {}
        return told

    def log(self) -> str:
        told: str = (self.run / contract.RUN_LOG).read_text(errors="replace")
        return told

    def first_step_s(self) -> float | None:
        """From the start of the process until its first line of metrics was seen; None: it never came."""
        came = self.until(lambda: bool(self.lines()), self.bench.start_deadline_s())
        return round(time.monotonic() - self.began, 1) if came else None

    def rank(self, role: str) -> int:
        """The pid of the last process of that role."""
        ranks = json.loads((self.run / contract.RUNTIME).read_text())["ranks"]
        return int([one["pid"] for one in ranks if one["role"] == role][-1])


def compilations(log: str) -> dict[str, str]:
    """Device, or process of the drafters -> graphs compiled, hits and misses."""
    found = {
        f"drafter {number}": f"{graphs} graphs, {hits} hits, {misses} misses"
        for number, graphs, hits, misses in COMPILED_BY.findall(log)
    }
    for device in COMPILING.findall(log):
        key = device.rstrip(",.")
        found[key] = f"{int(found.get(key, '0').split()[0]) + 1} planned"
    return found


def troubles(job: Job) -> dict[str, Any]:
    log, compiled = job.log(), job.status().get("compiled") or {}
    return {
        "fx_errors": log.count(FX_ERROR),
        "fallbacks": compiled.get("fallbacks"),
        "recompiles": compiled.get("recompiles"),
        "tracing_stuck": compiled.get("tracing_stuck"),
        "exit_code": job.code(),
    }


def last_words(job: Job) -> dict[str, Any]:
    return {} if job.code() in (None, 0) else {"log": job.log()[-1200:]}


def recorded(name: str, split: tuple[int, int], to: Path, training_s: float) -> dict[str, Any]:
    """A variant of tests/gpu/record.py, stopped when it has trained for so long; `to` keeps its record."""
    shipped = record.VARIANTS[name]
    settings = {**shipped.settings, "steps": 2000}
    variant = replace(shipped, settings=settings, targets=split[0], drafters=split[1])
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        told = record.record(name, variant, Path(work), most_training_s=training_s, most_run_s=120.0)
    (to / f"{name}.json").write_text(json.dumps(record.trimmed(told), separators=(",", ":")) + "\n")
    compiled = (told["snapshots"][-1]["status"] or {}).get("compiled") or {}
    rates = [line["tokens_per_s"] for line in told["metrics"][3:]]
    peaks = [max(line["peak_memory_mib"]) for line in told["metrics"] if line["peak_memory_mib"]]
    stopped = told["exit_code"] in (contract.EXIT_OK, contract.EXIT_STOPPED_WITH_CHECKPOINT)
    return {
        "tokens_per_s": round(statistics.median(rates)) if rates else None,
        "steps": told["metrics"][-1]["step"] if told["metrics"] else 0,
        "peak_mib": round(max(peaks)) if peaks else None,
        **{count: compiled.get(count) for count in ("fallbacks", "recompiles", "tracing_stuck")},
        "exit_code": told["exit_code"],
        **({} if stopped else {"log": told["log_tail"][-1200:]}),
    }


class GpuUse:
    """What nvidia-smi says each GPU was used, every two seconds. Nothing where there is none."""

    def __init__(self) -> None:
        self._seen: list[list[float]] = []
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        argv = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._over.wait(2.0):
            try:
                told = subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout.split()
                self._seen.append([float(word) for word in told])
            except (OSError, ValueError, subprocess.TimeoutExpired):
                continue

    def __enter__(self) -> None:
        if shutil.which("nvidia-smi"):
            self._asking.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._asking.is_alive():
            self._asking.join(15)

    def by_role(self, split: tuple[int, int]) -> dict[str, float] | None:
        rows = [row for row in self._seen if len(row) >= sum(split)]
        if not rows:
            return None
        roles = {"targets": range(split[0]), "drafters": range(split[0], sum(split))}
        return {
            name: round(statistics.fmean(row[i] for row in rows for i in which), 1) for name, which in roles.items()
        }

"""The trainer on a machine of eight GPUs, 5 targets + 3 drafters: each row printed as it is known.

    python benches/eight_gpus.py FOLDER --results FILE [--for SECONDS] [--gpus N] [--tiny] [TABLE ...]

    cold   an empty compile cache, then the one it left, both engines: first step, compilations on each device, misses
    rate   tokens/s, waits and use of the GPUs of 5+3, 6+2, 4+4 and of 1+1 on one GPU, three minutes each
    off    the guard taken away and nothing compiled beforehand, threads: what the run comes to
    hurt   one drafter killed, one target frozen: what the run does, and what its status says

FILE keeps the rows that are known; a row in it is not measured again, and none is begun that would pass --for. Without
tables: all, the most wanted first. --gpus: fewer of them (2: 1+1 in place of every split). --tiny: small shapes; on a
machine with fewer than two GPUs all roles share what there is. Nothing comes from a network.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

from trainer_jobs import Bench, GpuUse, compilations, last_words, recorded, troubles, two_gpus

RATE_S = {False: 180.0, True: 5.0}
OFF_S = {False: 30.0, True: 20.0}


@dataclass(frozen=True)
class Row:
    table: str
    name: str
    needs_s: float
    """At most; none is begun that has less."""
    work: Callable[[], dict[str, Any]]


# The rows


def start_once(bench: Bench, engine: str, cache: str, *, fresh: bool) -> dict[str, Any]:
    if fresh:
        shutil.rmtree(bench.folder / cache, ignore_errors=True)
    job = bench.job(bench.splits[0], engine, cache=cache)
    job.start()
    try:
        first = job.first_step_s()
        job.until_steps(3, 60)
        compiled = job.status().get("compiled") or {}
        return {
            "first_step_s": first,
            "hits": compiled.get("cache_hits"),
            "misses": compiled.get("cache_misses"),
            "compilations": compilations(job.log()),
            "cache_mb": round(sum(one.stat().st_size for one in job.cache.rglob("*") if one.is_file()) / 1e6, 1),
            **troubles(job),
            **last_words(job),
        }
    finally:
        job.end()


def rate(bench: Bench, split: tuple[int, int], engine: str) -> dict[str, Any]:
    job = bench.job(split, engine, cache=f"cache-{engine}")
    used = GpuUse()
    job.start()
    try:
        first = job.first_step_s()
        if first is None:
            return {"first_step_s": None, **troubles(job), "log": job.log()[-1200:]}
        began, step = time.monotonic(), job.lines()[-1]["step"]
        with used:
            job.until(lambda: False, RATE_S[bench.tiny])
        spent_s = time.monotonic() - began
        lines = [line for line in job.lines() if line["step"] > step]
        if not lines:
            return {"first_step_s": first, "steps": 0, **troubles(job), **last_words(job)}
        last = lines[-1]
        phases = {
            name[8:]: round(statistics.median(line[name] for line in lines), 4)
            for name in last
            if name.startswith("phase_s/")
        }
        return {
            "tokens_per_s": round(statistics.fmean(line["tokens_per_s"] for line in lines)),
            "over_s": round(spent_s),
            "steps": len(lines),
            "slowest_line": round(min(line["tokens_per_s"] for line in lines)),
            "fastest_line": round(max(line["tokens_per_s"] for line in lines)),
            "drafter_waits": round(last["drafter_wait_share"], 3),
            "target_waits": round(last["target_wait_share"], 3),
            "step_s": phases,
            "gpu_use_percent": used.by_role(split),
            "peak_mib": [round(one) for one in last["peak_memory_mib"]] if last["peak_memory_mib"] else None,
            "first_step_s": first,
            **troubles(job),
            **last_words(job),
        }
    finally:
        job.end()


def guard_off(bench: Bench) -> dict[str, Any]:
    """Long rows of a small target: attention is most of a step there, and fits uncompiled. FOLDER/off keeps what the
    runs said."""
    kept = bench.folder / "off"
    kept.mkdir(exist_ok=True)
    return {name: recorded(name, bench.splits[0], kept, OFF_S[bench.tiny]) for name in ("healthy_long", "stuck_long")}


def hurt(bench: Bench, role: str, number: signal.Signals) -> dict[str, Any]:
    job = bench.job(
        bench.splits[0], "processes", cache="cache-processes", **{"watchdog.stall_s": 15, "watchdog.compile_s": 15}
    )
    job.start()
    pid = None
    try:
        if job.first_step_s() is None or not job.until_steps(3, 60):
            return {"went_wrong": "no third step", **troubles(job), "log": job.log()[-1200:]}
        before, pid = len(job.lines()), job.rank(role)
        os.kill(pid, number)
        began = time.monotonic()
        ended = job.until(lambda: job.code() is not None, 40)
        facts = {"ended": ended, "after_s": round(time.monotonic() - began, 1) if ended else None}
        status = job.status()
        facts.update(steps_more=len(job.lines()) - before, phase=status.get("phase"), detail=status.get("detail"))
        if not ended:
            if job.process is not None:
                job.process.terminate()
            job.until(lambda: job.code() is not None, 10)
            facts["code_after_sigterm"] = job.code()
        return {**facts, "exit_code": job.code(), "log": job.log()[-800:]}
    finally:
        if pid is not None and number == signal.SIGSTOP and job.code() is None:
            os.kill(pid, signal.SIGCONT)
        job.end()


def prepare(bench: Bench) -> None:
    """The model and the data, unless FOLDER has them."""
    if not (bench.folder / "model").is_dir():
        two_gpus.make_model(bench.folder, bench.tiny)
    if not (bench.folder / "data.jsonl").is_file():
        two_gpus.write_data(bench.folder, bench.tiny)


def rows_of(bench: Bench) -> list[Row]:
    """The most wanted first: a machine of eight GPUs is lent for minutes."""
    main, tiny = bench.splits[0], bench.tiny
    start_s, rate_s = (60.0, 60.0 + RATE_S[True]) if tiny else (100.0, 70.0 + RATE_S[False])

    def started(engine: str, fresh: bool) -> Row:
        name = f"{engine}, {'an empty cache' if fresh else 'the cache it left'}"
        cache = f"cache-{engine}"
        return Row("cold", name, start_s, lambda: start_once(bench, engine, cache, fresh=fresh))

    def rated(split: tuple[int, int], engine: str) -> Row:
        return Row("rate", f"{split[0]}+{split[1]}, {engine}", rate_s, lambda: rate(bench, split, engine))

    threads = [
        Row("off", "no guard, nothing compiled before", 2 * start_s, lambda: guard_off(bench)),
        started("threads", True),
        started("threads", False),
        rated(main, "threads"),
    ]
    # Both roles on one GPU.
    alone = Row("rate", "1+1 on one GPU, threads", rate_s, lambda: rate(one_gpu(bench), (1, 1), "threads"))
    if bench.shares_a_gpu(main):
        return [*threads, alone]
    return [
        started("processes", True),
        started("processes", False),
        rated(main, "processes"),
        Row("hurt", "one drafter killed", start_s, lambda: hurt(bench, "drafter", signal.SIGKILL)),
        Row("hurt", "one target frozen", start_s + 30, lambda: hurt(bench, "target", signal.SIGSTOP)),
        *threads,
        *[rated(split, "processes") for split in bench.splits[1:]],
        *[rated(split, "threads") for split in bench.splits[1:]],
        alone,
    ]


def one_gpu(bench: Bench) -> Bench:
    if bench.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return Bench(bench.folder, bench.tiny, min(1, bench.gpus), ((1, 1),), bench.made)


def read_results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def gpus_here() -> int:
    import torch

    count: int = torch.cuda.device_count()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", default=[])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--for", dest="budget_s", type=float, default=570.0)
    parser.add_argument("--gpus", type=int, default=None)
    parser.add_argument("--split", default=None, help="as 2+1, in place of 5+3, 6+2 and 4+4")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_intermixed_args()
    until = time.monotonic() + asked.budget_s
    gpus = gpus_here() if asked.gpus is None else asked.gpus
    splits: tuple[tuple[int, int], ...] = ((5, 3), (6, 2), (4, 4))
    if asked.split:
        targets, drafters = asked.split.split("+")
        splits = ((int(targets), int(drafters)),)
    asked.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.folder, asked.tiny, gpus, splits)
    prepare(bench)
    known = {(row["table"], row["row"], row["tiny"]) for row in read_results(asked.results)}
    for row in rows_of(bench):
        if (asked.tables and row.table not in asked.tables) or (row.table, row.name, asked.tiny) in known:
            continue
        if time.monotonic() + row.needs_s > until:
            print(f"not begun, {row.needs_s:.0f} s are not left: {row.table}, {row.name}", flush=True)
            continue
        began = time.monotonic()
        try:
            facts = row.work()
        except Exception as error:  # the machine is there once: one row that goes wrong takes no other with it
            facts = {"went_wrong": f"{type(error).__name__}: {error}"[:600]}
        line = {"table": row.table, "row": row.name, "tiny": asked.tiny, "gpus": gpus, **facts}
        line["took_s"] = round(time.monotonic() - began, 1)
        print(json.dumps(line), flush=True)
        if "went_wrong" not in line:
            with asked.results.open("a") as stream:
                stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

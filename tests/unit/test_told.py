"""Frames of the agent's watch, put together again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.reports.told import KEPT_LOG_BYTES, Told
from tests.unit.facts import PAYLOAD, TARGET

RUN = {"id": "r1", "spec": {"created_at": 1.0}, "training_alive": True, "wrapper_alive": True, "log": {"size": 0}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def everything(run: dict[str, Any] | None = RUN, *, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"all": {"now": 5.0, "live": {}, "run": run, **more}, "log": {"at": at, "anew": True}}


def grown(at: int, *, anew: bool = False, **changed: Any) -> dict[str, Any]:
    return {"changed": {}, "run": changed, "log": {"at": at, "anew": anew}}


def line(step: int) -> bytes:
    return b"step %d loss 0.5\n" % step


def test_what_did_not_change_stays() -> None:
    told = Told(TARGET, Clock())
    told.take(everything(disk_free_bytes=7), b"")
    status = {"phase": "compiling", "detail": "compiling 3 of 8", "phase_started_at": 2.0}
    report = told.take({"changed": {"now": 12.0}, "run": {"status": status}, "log": {"at": 0, "anew": False}}, b"")
    assert report.disk_free_bytes == 7 and report.now_s == 12.0
    assert report.run is not None and report.run.run_id == "r1" and report.compiling is not None
    assert (report.compiling.number, report.compiling.total, report.compiling.elapsed_s) == (3, 8, 10.0)


def test_the_log_goes_on_and_is_kept_within_bounds() -> None:
    told = Told(TARGET, Clock())
    told.take(everything(), line(1))
    report = told.take(grown(len(line(1))), line(2) + b"ste")
    assert report.last_lines == ("step 1 loss 0.5", "step 2 loss 0.5", "ste")
    end = len(line(1)) + len(line(2)) + 3
    report = told.take(grown(end), b"p 3 loss 0.5\n" + b"x" * KEPT_LOG_BYTES)
    assert report.throughput is not None and report.throughput.step == 3
    assert len(report.last_lines) == 1


def test_after_a_lost_connection_the_log_goes_on_where_it_ended() -> None:
    clock = Clock()
    told = Told(TARGET, clock)
    told.take(everything(), line(10))
    clock.now = 10.0
    report = told.take(everything(), line(10) + line(60))
    assert report.last_lines == ("step 10 loss 0.5", "step 60 loss 0.5"), "nothing twice"
    assert report.throughput is not None and report.throughput.rate is not None
    assert report.throughput.rate.per_s == 5.0, "its speed is known across the gap"


def test_what_was_left_out_or_cut_is_no_line() -> None:
    told = Told(TARGET, Clock())
    told.take(everything(), line(1))
    report = told.take(grown(5000, anew=True), b"9 loss 0.5\nstep 70 loss 0.5\n")
    assert report.throughput is not None and report.throughput.step == 70
    report = told.take(grown(0, anew=True), line(2))
    assert report.last_lines == ("step 2 loss 0.5",) and report.throughput is not None
    assert report.throughput.step == 2, "the file became shorter: what was is void"


def test_another_run_begins_anew() -> None:
    told = Told(TARGET, Clock())
    told.take(everything(), line(900))
    frame = {"changed": {"run": {**RUN, "id": "r2"}}, "log": {"at": 0, "anew": True}}
    report = told.take(frame, b"starting\n")
    assert report.run is not None and report.run.run_id == "r2"
    assert report.throughput is None and report.last_lines == ("starting",)


def test_the_gpus_last_word_stays_beside_what_is_wrong_now() -> None:
    told = Told(TARGET, Clock())
    smi = {"rows": ["0, NVIDIA H200, 143771, 3, 98"], "error": "nvidia-smi has not answered for 12 s"}
    report = told.take(everything(gpu={"nvml": {"told": None}, "smi": smi}, gpu_age_s=12.5), b"")
    assert report.gpus is not None and report.gpus[0].utilization_percent == 98 and report.gpu_source == "nvidia-smi"
    assert (report.gpus_age_s, report.gpu_error) == (12.5, "nvidia-smi has not answered for 12 s")
    smi = {"rows": [], "error": "x\x1b[31m y"}
    report = told.take(everything(gpu={"nvml": {}, "smi": smi}, gpu_age_s=None), b"")
    assert (report.gpus, report.gpus_age_s, report.gpu_error) == (None, None, "x y")


def test_nvmls_last_word_stays_too_and_what_is_wrong_with_one_gpu_is_said() -> None:
    told = Told(TARGET, Clock())
    rows = [{"index": 0, "utilization_percent": 98}, {"index": 1, "error": {"code": 15, "text": "GPU is lost"}}]
    word = {"told": {"gpus": rows}, "failed": None, "error": "NVML has not answered for 12 s"}
    report = told.take(everything(gpu={"nvml": word, "smi": None, "nodes": {}}, gpu_age_s=12.5), b"")
    assert report.gpus is not None and report.gpus[0].utilization_percent == 98 and report.gpu_source == "nvml"
    assert (report.gpus_age_s, report.gpu_error) == (12.5, "NVML has not answered for 12 s")
    assert report.gpu_warnings == ("GPU 1: GPU is lost (NVML code 15)",)
    word = {"told": {"gpus": rows}, "failed": {"code": 18, "text": "mismatch"}, "error": None}
    report = told.take(everything(gpu={"nvml": word, "smi": None}, gpu_age_s=3.0), b"")
    assert report.gpus is not None and report.gpu_error is not None and "code 18" in report.gpu_error


def test_a_run_that_was_killed_says_of_what() -> None:
    log = line(1) + b"/run.sh: line 3:  8156 Killed                  python3 train.py\n"
    kernel = b"Out of memory: Killed process 8156 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB\n"
    ended = {"exit": {"exit_code": 137, "started_at": 1.0, "ended_at": 4.0}, "training_alive": False}
    found = Told(TARGET, Clock()).take(everything({**RUN, **ended}), log).failure
    assert found is not None and found.kind == "killed" and "8156 Killed" in (found.cause or "") and found.remedy
    found = Told(TARGET, Clock()).take(everything({**RUN, **ended}), log + kernel).failure
    assert found is not None and found.kind == "host_oom_kill" and found.traceback is None


def test_a_rate_outside_of_what_is_expected_is_a_warning_only_over_a_while() -> None:
    expected = replace(
        PAYLOAD, expected=replace(PAYLOAD.expected, tokens_per_s_min=20_000.0, tokens_per_s_max=21_500.0)
    )
    clock = Clock()
    told = Told(replace(TARGET, payload=expected), clock)
    live = {**RUN, "wrapper_alive": True}
    log = b"step 1 12.8 Ktok/s\n"
    report = told.take(everything(live, live={"held": True, "content": {"run_id": "r1"}}), log)
    assert report.rate_warning is None, "the first steps compile"
    at = len(log)
    for number in range(2, 12):
        clock.now += 5.0
        log = b"step %d %s Ktok/s\n" % (number, b"12.8" if number < 8 else b"20.5")
        report = told.take(grown(at), log)
        at += len(log)
        if number == 6:
            assert report.rate_warning == "12.8 Ktok/s is less than the 20.0 Ktok/s that are expected"
    for number in range(12, 40):
        clock.now += 10.0
        log = b"step %d 20.5 Ktok/s\n" % number
        report = told.take(grown(at), log)
        at += len(log)
    assert report.rate_warning is None

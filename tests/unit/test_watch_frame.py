"""The frame of `orch status --watch`, at many sizes. Pure: no terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.records import parse_run_record
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.rate import Rate
from orchestrator.probes.throughput import Throughput
from orchestrator.probes.training import CompileProgress, parse_status
from orchestrator.reports.fitting import text_width
from orchestrator.reports.status import CacheFact, Failure, LinkFact, StatusReport, render_status
from orchestrator.reports.training import clock_text, compiled_text, rate_of
from orchestrator.reports.watch_frame import Tone, change_key, render_change, render_frame

NOW = 1_800_000_000.0
GPUS = tuple(GpuFact(index, "NVIDIA H200", 143771, 71234 + index, 98) for index in range(8))


def run(**about: Any) -> Any:
    """A run that has been going for 3 hours; `about`: other parts of what the agent says of it."""
    record = {
        "id": "20270115-080000-3f2a",
        "folder": "/root/orch/runs/x",
        "spec": {"created_at": NOW - 10800, "release": "/root/orch/releases/0123456789abcdef"},
        "training_alive": True,
        "wrapper_alive": True,
        "training_pid": 4711,
        **about,
    }
    session = {"wanted": "dflash", "present": True, "attached": 0, "note": None, "attach": ["tmux"]}
    live = {"held": True, "content": {"run_id": record["id"]}}
    return parse_run_record({"now": NOW, "run": record, "live": live, "session": session})


REPORT = StatusReport(
    target="ct200",
    label="ct200 (container 200 of gpu-box)",
    now_s=NOW,
    container=ContainerFact(86400.0, 4_100_000_000, 68_700_000_000, 16.0),
    run=run(status={"phase": "training", "step": 120, "total_steps": 700}),
    throughput=Throughput("status.json", 120, 700, 1.2345, Rate(12_345.0, "tok"), Rate(12_300.0, "tok"), 123.0),
    release="/root/orch/releases/0123456789abcdef",
    disk_free_bytes=353_000_000_000,
    cache=CacheFact(1_500_000_000, 321, 12.0),
    gpus=GPUS,
    last_lines=tuple(
        f"step {n} loss {1 / n:.4f} 損失 12.3 Ktok/s and whatever else it says there" for n in range(1, 9)
    ),
)
FACTS = ["20270115-080000-3f2a", "running for 3 h 0 min", "step 120/700", "loss 1.234", "12.3 Ktok/s", "ETA 2 min 3 s"]
FILE = "/root/orch/releases/0123456789abcdef/train.py"
TRACEBACK = "Traceback (most recent call last):\n" + "".join(
    f'  File "{FILE}", line {n}, in f{n}\n    f{n + 1}(損失={n})\n' for n in range(60)
)
FAILED = replace(
    REPORT,
    run=run(exit={"exit_code": 1, "started_at": NOW - 60, "ended_at": NOW - 5}, training_alive=False),
    failure=Failure("20270115-080000-3f2a", "exit code 1", NOW - 5, "ValueError: nan", TRACEBACK + "ValueError: nan"),
)


def text(report: StatusReport, width: int = 80, height: int | None = 24) -> str:
    return "\n".join(line.text for line in render_frame(report, width=width, height=height))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [10, 14, 24, 50])
def test_what_matters_is_there_at_every_size(width: int, height: int) -> None:
    shown = text(REPORT, width, height)
    lines = shown.splitlines()
    assert max(map(text_width, lines)) <= width and len(lines) <= height
    assert all(fact in shown for fact in FACTS)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_everything_fits_a_usual_terminal(width: int) -> None:
    shown = text(REPORT, width, 24)
    for fact in (
        "dflash: orch attach",
        "up 24 h 0 min",
        "memory 4.1 GB of 68.7 GB",
        "1.5 GB",
        "321 graphs",
        "353 GB free",
    ):
        assert fact in shown  # fmt: skip
    for gpu in GPUS:
        assert str(gpu.memory_used_mib) in shown, "each GPU has its line"
    assert "| step 8 loss 0.1250" in shown, "the newest line of the log"


def test_eight_gpus_share_lines_where_there_is_little_height() -> None:
    shown = text(REPORT, 80, 14)
    assert "8 NVIDIA H200, 143771 MiB each" in shown and "7: 69.6G 98%" in shown


@given(st.integers(40, 240), st.integers(4, 80), st.sampled_from([REPORT, FAILED, replace(REPORT, run=None)]))
def test_no_line_is_too_wide_and_no_frame_too_high(width: int, height: int, report: StatusReport) -> None:
    lines = render_frame(report, width=width, height=height)
    assert len(lines) <= height
    assert all(text_width(line.text) <= width for line in lines)


@given(st.integers(40, 120))
def test_no_number_is_cut(width: int) -> None:
    known = set(re.findall(r"[0-9.]+", text(REPORT, 400, None)))
    assert set(re.findall(r"[0-9.]+", text(REPORT, width, 50))) <= known


def test_a_failure_is_whole_in_what_stays_on_the_screen() -> None:
    assert TRACEBACK + "ValueError: nan" in text(FAILED, 60, None)
    assert "failed: exit code 1" in text(FAILED, 60, None)


def test_a_failure_on_a_small_screen_shows_its_end_and_how_much_is_above() -> None:
    shown = text(FAILED, 60, 24)
    assert "failed: exit code 1" in shown and "ValueError: nan" in shown
    hidden = re.search(r"… (\d+) lines above: orch logs --traceback", shown)
    assert hidden is not None
    whole = len(text(FAILED, 60, 10_000).splitlines())
    assert int(hidden[1]) > whole - 24 - 12
    assert "12.3 Ktok/s" not in shown and "ETA" not in shown, "nothing goes on any more"


def test_a_failure_of_a_known_kind_says_its_cause_and_the_way_out() -> None:
    oom = replace(
        FAILED.failure, kind="cuda_oom", cause="torch.OutOfMemoryError: CUDA out of memory", remedy="smaller batch"
    )
    without_traceback = replace(oom, traceback=None)
    for failure in (oom, without_traceback):
        shown = text(replace(FAILED, failure=failure), 80, 24)
        assert "cause: cuda_oom: torch.OutOfMemoryError: CUDA out of memory" in shown
        assert "way out: smaller batch" in shown
    assert "cause:" not in text(FAILED, 80, None), "its log does not tell"
    earlier = text(replace(REPORT, failure=replace(oom, run_id="20270114-080000-0000")), 100, None)
    assert "cuda_oom: torch.OutOfMemoryError" in earlier and "way out" not in earlier, "another run's, in one line"


def test_a_long_start_says_what_it_compiles() -> None:
    compiling = replace(REPORT, compiling=CompileProgress(3, 8, 250.0))
    assert "compiling 3 of 8, 4:10" in text(compiling, 60)
    assert clock_text(3850) == "1:04:10"


def test_what_was_compiled_and_what_the_training_warns_of_is_shown_in_both() -> None:
    counts = {"compiles": 48, "cache_hits": 46, "cache_misses": 2, "fallbacks": 1, "recompiles": 0}
    said = {"phase": "training", "compiled": counts, "warnings": ["torch 2.12 is none of those\x1b[31m"]}
    assert REPORT.run is not None
    told = replace(REPORT, run=replace(REPORT.run, status=parse_status(said)))
    wanted = ["48 graphs, 46 from the cache, 2 not; 1 fallbacks, 0 recompiles", "torch 2.12 is none of those"]
    for shown in (text(told, 100, None), render_status(told)):
        for label, words in zip(("compiled", "warning"), wanted, strict=True):
            assert re.search(rf"\b{label} +{words}", shown), shown
    (line,) = (one for one in render_frame(told, width=100, height=None) if one.text.startswith("compiled"))
    assert line.tone is Tone.WARN
    odd = parse_status({"phase": "training", "compiled": {"compiles": "many", "x": 1}, "warnings": "one"})
    assert odd is not None
    assert (odd.compiled, odd.warnings, compiled_text(odd.compiled or {})) == ({"x": 1}, (), "")


def test_a_link_that_is_down_says_since_when_and_how_old_the_rest_is() -> None:
    down = replace(REPORT, link=LinkFact(False, 12.0, "nothing came for 15 s", 27.0))
    shown = text(down, 60)
    assert "down for 12 s" in shown and "27 s old" in shown and FACTS[2] in shown
    assert "down for 12 s" in render_change(down)
    assert change_key(down) != change_key(REPORT)


def test_text_from_afar_cannot_draw() -> None:
    evil = replace(REPORT, gpus=(GpuFact(0, "\x1b[2JH200\n\tx", 1, 1, 1),), gpu_error="\x1b]0;t\x07no\rtab\there")
    lines = render_frame(evil, width=60, height=24)
    assert not any(char < " " or char == "\x7f" for line in lines for char in line.text)


def test_tones_say_only_what_words_say() -> None:
    tones = {line.tone: line.text for line in render_frame(FAILED, width=80, height=24)}
    assert "failed" in next(line.text for line in render_frame(FAILED, width=80, height=24) if line.tone is Tone.BAD)
    assert Tone.GOOD not in tones


def test_unknown_is_a_dash() -> None:
    unknown = replace(
        REPORT, gpus=(GpuFact(None, None, None, None, None),), disk_free_bytes=None, cache=CacheFact(None, None)
    )
    shown = text(unknown)  # fmt: skip
    assert "-  - of - MiB  -  -" in shown and "- free" in shown


def test_an_empty_cache_is_called_empty_as_in_a_status() -> None:
    shown = text(replace(REPORT, cache=CacheFact(None, None, 3.0, new_files=0)))
    assert "cache      empty, 0 files new since the launch, counted 3 s ago" in shown


def test_a_line_of_its_own_for_a_pipe() -> None:
    line = render_change(REPORT)
    assert "\n" not in line and all(fact in line for fact in FACTS) and "69.6G 98%" in line
    assert render_change(replace(REPORT, run=None)) == "ct200: no run yet"
    later = replace(REPORT, now_s=NOW + 5, gpus=GPUS[:1])
    assert change_key(later) == change_key(REPORT), "time and memory are no news"
    assert REPORT.throughput is not None
    assert change_key(replace(REPORT, throughput=replace(REPORT.throughput, step=121))) != change_key(REPORT)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (Rate(12_345.0, "tok"), "12.3 Ktok/s"),
        (Rate(5856.0, "tok", True, "tps: 5,856"), "5.9 Ktok/s a GPU"),
        (Rate(0.34722, "it", False, "2.88s/it"), "0.347 it/s (2.88s/it)"),
        (Rate(1.5596, "it", False, "1.56it/s"), "1.56 it/s"),
        (Rate(7.799, "samples", False, "samples/sec: 7.799"), "7.8 samples/s"),
        (Rate(2.0, "it", False, "iter time: 500 ms"), "2 it/s (iter time: 500 ms)"),
        (Rate(2.0, "it"), "2 it/s"),
    ],
)
def test_rates_keep_their_unit(rate: Rate, said: str) -> None:
    assert rate_of(rate) == said

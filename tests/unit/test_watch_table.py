"""A row for each of several targets that are watched."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.gpu import GpuFact
from orchestrator.reports.fitting import text_width
from orchestrator.reports.gpu_rows import gpu_rows
from orchestrator.reports.status import LinkFact, StatusReport
from orchestrator.reports.trend import BARS
from orchestrator.reports.watch_frame import Tone, render_frame
from orchestrator.reports.watch_table import Watched, render_table
from tests.unit.test_watch_frame import FAILED, GPUS, REPORT

FULL = tuple(
    replace(gpu, power_w=650.12, power_limit_w=700.0, temperature_c=61, sm_clock_mhz=1980, throttle=("sw_power_cap",))
    for gpu in GPUS
)
ROLES = ("target",) * 5 + ("drafter",) * 3


def watched(name: str, report: StatusReport | None = None, error: str | None = None) -> Watched:
    one = Watched(name)
    if report is not None:
        one.take(report)
    one.error = error
    return one


ALL = [
    watched("ct200", REPORT),
    watched("ct201", FAILED),
    watched("ct202", replace(REPORT, link=LinkFact(False, 12.0, "nothing came for 15 s", 27.0))),
    watched("ct203", error="10.1.2.7 refused the connection on port 22"),
    watched("ct204"),
    watched("ct205", replace(REPORT, gpus=(*GPUS[:7], GpuFact(7, None, None, None, error="GPU is lost"))
                             , gpu_warnings=("GPU 7: GPU is lost",))),
]  # fmt: skip


def test_a_row_says_how_it_goes_and_what_is_wrong() -> None:
    head, *rows = render_table(ALL, width=200, height=None)
    assert head.tone is Tone.TITLE and head.text.split()[:2] == ["target", "run"]
    said = [row.text for row in rows]
    for fact in ("ct200", "running for 3 h 0 min", "120/700", "1.234", "12.3 Ktok/s", "2 min 3 s", "8 at 98 %, 70 GiB"):
        assert fact in said[0]
    assert "failed: exit code 1" in said[1] and said[1].endswith("ValueError: nan") and "12.3 Ktok/s" not in said[1]
    assert said[2].endswith("link down, this is 27 s old: nothing came for 15 s")
    assert "not reached" in said[3] and said[3].endswith("refused the connection on port 22")
    assert "connecting" in said[4]
    assert "7 of 8 at 98 %" in said[5] and said[5].endswith("GPU 7: GPU is lost")
    assert [row.tone for row in rows] == [Tone.PLAIN, Tone.BAD, Tone.BAD, Tone.BAD, Tone.DIM, Tone.WARN]
    assert any(bar in said[0] for bar in BARS)
    assert not any(bar in line.text for line in render_table(ALL, width=200, height=None, bars=False) for bar in BARS)


def test_where_not_all_fit_those_in_trouble_are_shown() -> None:
    many = [watched(f"ok{number}", REPORT) for number in range(50)] + [ALL[1]]
    lines = render_table(many, width=120, height=6)
    assert len(lines) == 6 and "failed: exit code 1" in lines[4].text and lines[5].text == "… 47 more"


@given(st.integers(1, 250), st.integers(1, 20))
def test_no_table_is_too_wide_or_too_high(width: int, height: int) -> None:
    lines = render_table(ALL, width=width, height=height)
    assert len(lines) <= height and all(text_width(line.text) <= max(width, 40) for line in lines)


def test_each_gpu_has_its_role_and_what_slows_it() -> None:
    rows = gpu_rows(FULL, ROLES, 120)
    assert rows[0].split("  ")[0].strip() == "target" and rows[7].startswith("drafter")
    for fact in ("71234 of 143771 MiB", "98 %", "650 W", "61 °C", "1980 MHz", "power cap", "NVIDIA H200"):
        assert fact in rows[0]
    narrow = gpu_rows(FULL, ROLES, 46)
    assert all("of 143771 MiB" in row and "98 %" in row for row in narrow) and "MHz" not in narrow[0]


def test_a_gpu_that_does_not_answer_says_why_in_its_row() -> None:
    gpus = (*FULL[:3], GpuFact(3, "NVIDIA H200", None, None, error="GPU is lost (NVML code 15)"), *FULL[4:])
    warning = "GPU 3: GPU is lost (NVML code 15)"
    report = replace(REPORT, gpus=gpus, gpu_roles=ROLES, gpu_warnings=(warning, "there is no /dev/nvidia-uvm"))
    lines = render_frame(report, width=100, height=40)
    (lost,) = [line for line in lines if "GPU is lost" in line.text]
    assert lost.text.strip() == "3  target  GPU is lost (NVML code 15)" and lost.tone is Tone.BAD
    assert any(line.text.startswith("warning    there is no /dev/nvidia-uvm") for line in lines)
    small = "\n".join(line.text for line in render_frame(report, width=80, height=12))
    assert "3: no answer" in small and warning in small

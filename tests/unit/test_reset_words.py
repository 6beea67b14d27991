"""What orch reset says before it connects anywhere, and how its plan is laid out."""

import dataclasses

import pytest

from orchestrator.cli.main import main
from orchestrator.cli.parsers import build_parser
from orchestrator.cli.reset_command import next_step
from orchestrator.ledger.snapshots import Seed
from orchestrator.probes.compile_cache import CacheFolder, CompileCache
from orchestrator.probes.gpu_processes import GpuVerdict, HostProcess
from orchestrator.probes.kill_plan import RunProcess, RunToEnd, plan_kill
from orchestrator.reports.reset import Cleared, Recheck, ResetPlan, ResetReport, render_plan, render_reset, reset_record

LONG = "python train.py --with " + "many words " * 20
RUN = RunToEnd("20261129-141500-a1b2", True, (RunProcess(41, 5, "S", LONG, "its training"),), 120)
BESIDE = HostProcess(1400, 5, "S", "vllm serve", ("nvidia0", "nvidia-uvm"), 201, (1400, 9))
STRAY = HostProcess(1301, 6, "D", "python stray.py", ("nvidia10", "nvidia3"), 200, (1301, 55))
FOLDER = CacheFolder("TRITON_CACHE_DIR", "/root/orch/caches/live/triton", True, 353_000_000, 900, 12, 1.0, True, 0)
PLAN = ResetPlan(
    target="ct200",
    label="ct200 (container 200 on root@10.1.2.6)",
    kill=plan_kill(200, [RUN], [BESIDE, STRAY], []),
    gpus=tuple(GpuVerdict(index, 143771 if index else None, None, "") for index in range(8)),
    host_note=None,
    cache=CompileCache((FOLDER, dataclasses.replace(FOLDER, name="x", path="/gone", exists=False, bytes=None))),
    cache_unfinished=("20261128-100000",),
    snapshots_folder="/root/orch/caches/snapshots",
    seed=Seed("20261127-100000", "the cache that run r used, the newest that ended well"),
    stop_timeout_s=120.0,
)


@pytest.mark.parametrize("words", [[], ["--dry-run", "--yes"], ["--kill-gpus", "--seed", "last-good"]])
def test_without_a_part_it_says_which_there_are(words, capsys):
    assert main(["reset", *words]) == 2
    assert "--clear-cache" in capsys.readouterr().err


def test_the_step_after_a_dry_run_is_the_same_command():
    words = ["reset", "ct200", "--kill-gpus", "--clear-cache", "--seed", "last-good", "--dry-run"]
    assert next_step(build_parser().parse_args(words)) == "orch " + " ".join(words[:-1])


def test_the_plan_fits_80_columns_and_names_the_live_run_first():
    lines = render_plan(PLAN).splitlines()
    assert lines[1] == "  ENDS THE LIVE RUN 20261129-141500-a1b2 (step 120)"
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "      of the live run 20261129-141500-a1b2" in text and "      container 201's" in text
    assert "    55   1301     D      3,10  python stray.py" in text
    assert "0: -  1: 143771" in text and "353 MB, 24 compiled graphs" in text and "not there" in text
    assert "seed it from snapshot 20261127-100000" in text and "20261128-100000" in text


def test_a_plan_is_empty_only_when_nothing_would_change():
    nothing = dataclasses.replace(
        PLAN, kill=plan_kill(200, [], [BESIDE], []), cache=CompileCache(()), cache_unfinished=(), seed=None
    )
    assert nothing.empty and not PLAN.empty
    assert not dataclasses.replace(nothing, kill=PLAN.kill).empty
    assert not dataclasses.replace(nothing, cache=PLAN.cache).empty
    assert not dataclasses.replace(nothing, cache_unfinished=("x",)).empty


def test_what_is_not_known_is_not_as_wanted():
    free, unknown = Recheck("GPU memory", True, "free"), Recheck("GPU memory", None, "nvidia-smi did not answer")
    cleared = Cleared("20261129-150000", 5, 1, (), (), ())
    report = ResetReport(PLAN, True, ("run r: ended",), cleared, 3, (free, unknown))
    assert not report.as_wanted and ResetReport(PLAN, True, found=(free,)).as_wanted
    text = render_reset(report)
    assert "    ?   GPU memory  nvidia-smi did not answer" in text and "kept as snapshot 20261129-150000" in text
    record = reset_record(report)
    assert record["as_wanted"] is False and record["plan"]["cache"]["bytes"] == 353_000_000
    assert reset_record(ResetReport(PLAN, done=False))["as_wanted"] is None

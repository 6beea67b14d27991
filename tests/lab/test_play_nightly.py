"""The shipped nightly playbook as a timer starts it: it publishes, and whatever goes wrong leaves what is published,
keeps the evidence, and tells one person why. Killed in the middle, it goes on.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.surface import Lab
from tests.lab.place import PROJECT, Place, said
from tests.made_venv import MadeVenv
from tests.waiting import eventually

TRAINER = '''\
"""Trains nothing: prints what a training prints, leaves what a training leaves. Settings say what goes wrong."""
import json
import os
import signal
import time
from pathlib import Path

folder = Path(os.environ["ORCH_RUN_DIR"])
settings = json.loads((folder / "run.json").read_text())["settings"]
for step in range(1, settings["steps"] + 1):
    loss = "nan" if os.path.exists(settings["nan_once"]) else f"{1 / step:.4f}"
    print(f"step {step}/{settings['steps']} loss {loss} {settings['ktok_per_s']} Ktok/s", flush=True)
    time.sleep(settings["pause_s"])
cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
cache.mkdir(parents=True, exist_ok=True)
(cache / "kernel.py").write_text("compiled")
checkpoint = folder / "checkpoints" / f"step-{settings['steps']}"
checkpoint.mkdir(parents=True)
(checkpoint / "_SUCCESS").touch()
(folder / "export").mkdir()
(folder / "export" / "weights.bin").write_bytes(os.urandom(settings["kib"] * 1024))
result = {"acceptance_length": settings["tau"], "lossless": settings["lossless"], "prompts": 24, "block_size": 8}
(folder / "result.json").write_text(json.dumps(result))
'''
GOOD = {"steps": 4, "nan_once": "/nowhere", "ktok_per_s": 12.5, "pause_s": 0.1, "kib": 64, "tau": 3.2, "lossless": True}
FOREVER = {"steps": 10**6, "pause_s": 0.1}
numbers = itertools.count(1)


class Night(Place):
    """A place on a lab with the shipped playbook, and somebody who is told."""

    def __init__(self, lab: Lab, folder: Path, python: str) -> None:
        super().__init__(lab, folder, f"y{next(numbers)}")
        (self.payload / "train.py").write_text(TRAINER)
        self.published_to = f"{self.base}-published"
        self.python = python
        self.settings(GOOD)
        self.teller = folder / "tell"
        self.teller.write_text(f'#!/bin/sh\n{{ echo "$ORCH_OUTCOME: $ORCH_WHY"; cat; echo ----; }} >>"{folder}/told"\n')
        self.teller.chmod(0o755)

    def settings(self, *changes: Mapping[str, Any], host: Mapping[str, Any] | None = None) -> None:
        """What the trainings from now on do."""
        settings = {key: value for change in (GOOD, *changes) for key, value in change.items()}
        self.write(command=["python", "train.py"], python=self.python, settings=settings, stop_timeout_s=5, host=host)

    def environment(self) -> dict[str, str]:
        xdg = {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("state", "config")}
        return {**super().environment(), **xdg}

    @property
    def words(self) -> list[str]:
        """The playbook and what is set in it: one command line, the same each night."""
        published_to = f"ct200:{self.published_to}"
        values = {"publish_to": published_to, "free_disk_gib": "0.01", "within": "4s", "tell": str(self.teller)}
        return [str(PROJECT / "playbooks/nightly.yaml"), *(f"--var={name}={text}" for name, text in values.items())]

    def play(self, *more: str) -> subprocess.CompletedProcess[bytes]:
        return self.orch("play", *self.words, *more, timeout_s=120.0)

    def play_until(self, what: str, step: str, *more: str, output: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """A play under way that has just recorded this."""
        before = len(self.records())
        process = self.popen("play", *self.words, *more, stdout=output, stderr=output)

        def recorded() -> bool:
            assert process.poll() is None, self.record()
            return len(self.records()) > before and any(
                (line["what"], line.get("step")) == (what, step) for line in self.record()
            )

        eventually(recorded, f"{what} {step}", timeout_s=60)
        return process

    def published(self) -> str:
        """The tree hash of what is published, in its folder's name."""
        return self.inside("readlink", f"{self.published_to}/current").strip()

    def told(self) -> list[str]:
        """Since it was asked last."""
        file = self.folder / "told"
        text = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
        return [one.strip() for one in text.split("----\n") if one.strip()]

    def records(self) -> list[Path]:
        """Oldest first, whatever was played."""
        return sorted((self.folder / "state" / "orch" / "plays").glob("*/*.jsonl"), key=lambda path: path.name)

    def record(self) -> list[dict[str, Any]]:
        """Of the newest play; a line that is being written is left out."""
        return [json.loads(line) for line in self.records()[-1].read_bytes().splitlines(True) if line.endswith(b"\n")]

    def runs(self) -> list[str]:
        return self.inside("ls", f"{self.base}/runs").split()


class NightHere(Night):
    """On the embedded lab, whose container's files are this machine's: they are read without asking for them."""

    mounted = False
    """What is published lies on a file system that only the container sees."""

    def published(self) -> str:
        return super().published() if self.mounted else str(Path(self.published_to, "current").readlink())

    def runs(self) -> list[str]:
        return sorted(path.name for path in Path(self.base, "runs").iterdir())

    def not_ended(self) -> list[str]:
        """Runs that live, and those that nobody saw die."""
        return [run for run in self.runs() if not Path(self.base, "runs", run, "exit.json").exists()]


@pytest.fixture(scope="module")
def night(embedded_lab: EmbeddedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NightHere]:
    """One night went well: a drafter is published."""
    folder = tmp_path_factory.mktemp("night")
    made = MadeVenv(folder / "venv")
    night = NightHere(embedded_lab, folder, str(made.python))
    done = night.play()
    assert done.returncode == 0, said(done)
    assert len(night.told()) == 1
    yield night
    night.clean()


@pytest.fixture(autouse=True)
def nothing_was_told(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "night" in request.fixturenames:
        night = request.getfixturevalue("night")
        if night.not_ended():
            night.orch("stop", "--kill", "--timeout", "0")
        night.settings(GOOD)
        night.told()


FROM_LAUNCH = ("--from", "launch")
"""The guard, the deploy and the environment have had their turn in the first nights."""


def refused(
    night: NightHere,
    *more: str,
    code: int,
    step: str,
    why: str,
    evidence: bool = True,
    meanwhile: Callable[[], object] | None = None,
) -> str:
    """The night fails in this step: what is published stays, the log is kept, one message says why. Its output.
    meanwhile: done once this step has begun."""
    before, alive, kept = night.published(), night.not_ended(), set((night.folder / "failed").glob("*"))
    if meanwhile is None:
        done = night.play(*more)
        text, ended = said(done), done.returncode
    else:
        with (night.folder / "said").open("wb+") as output:
            process = night.play_until("begin", step, *more, output=output)
            meanwhile()
            ended = process.wait(120)
        text = (night.folder / "said").read_text()
    assert ended == code, text
    assert night.published() == before
    told = night.told()
    assert len(told) == 1, told
    assert told[0].startswith("failed: ") and why in told[0].splitlines()[0], told
    assert f"failed in `{step}`" in told[0]
    assert f"--from {step!r}" in text or f"--from {step} " in text, text
    if evidence:
        (folder,) = set((night.folder / "failed").glob("*")) - kept
        assert (folder / "run.log").stat().st_size > 0 and (folder / "fingerprint.json").exists()
        assert night.not_ended() == alive
    return text


def test_two_nights_in_a_row(night: NightHere) -> None:
    first, runs = night.published(), night.runs()
    done = night.play()
    assert done.returncode == 0, said(done)
    assert night.published() != first and len(night.runs()) == len(runs) + 1
    assert "cache is made from snapshot nightly-" in said(done)
    (told,) = night.told()
    assert told.startswith("done: ") and "tau: 3.2 (published: 3.2)" in told
    assert "12.5 Ktok/s, at least 10.6 Ktok/s wanted (85 % of 12.5 Ktok/s of run" in said(done)


def test_somebody_elses_live_run_is_left_alone(night: NightHere) -> None:
    night.settings(FOREVER)
    night.ok("launch")
    (run_id,) = night.not_ended()
    text = refused(night, code=10, step="guard", why=f"run {run_id} is live", evidence=False)
    assert "orch stop" in text
    assert night.not_ended() == [run_id]


def test_too_slow(night: NightHere) -> None:
    night.settings(FOREVER, {"ktok_per_s": 4.5})
    text = refused(night, *FROM_LAUNCH, code=14, step="as fast as before", why="is too slow: 4.5 Ktok/s after 4s")
    assert "85 % of 12.5 Ktok/s of run" in text


def test_a_worse_drafter(night: NightHere) -> None:
    night.settings({"tau": 3.1, "lossless": False})
    text = refused(night, *FROM_LAUNCH, code=14, step="gate", why="its decoding was not")
    assert "tau 3.1 is worse than 3.2 of the published one" in text
    refused(night, "--from", "publish", code=14, step="publish", why="no `gate` has let it through")


def test_a_loss_that_is_no_number(night: NightHere) -> None:
    night.settings(FOREVER, {"nan_once": str(night.folder / "nan")})
    meanwhile = (night.folder / "nan").touch
    text = refused(night, *FROM_LAUNCH, code=11, step="trained", why="is nan at step", meanwhile=meanwhile)
    assert "loss nan 12.5 Ktok/s" in text


def test_the_container_stops_half_way(night: NightHere) -> None:
    night.settings(FOREVER)
    before = night.published()
    process = night.play_until("begin", "trained", *FROM_LAUNCH)
    night.lab.stop_container()
    try:
        code = process.wait(60)
        (told,) = night.told()
    finally:
        night.lab.start_container()
    assert code == 7 and "failed in `trained`" in told and "container 200" in told, told
    assert night.published() == before
    assert Path(night.base, "runs", night.runs()[-1], "run.log").stat().st_size > 0
    night.settings(GOOD)
    again = night.play()
    assert again.returncode == 0, said(again)
    assert "the last play" in said(again) and "failed in `trained`" in said(again)


def test_the_disk_is_full_at_publish_and_it_goes_on_there_once_there_is_room(night: NightHere) -> None:
    full, runs = night.published_to, night.runs()
    night.settings({"kib": 5000})
    night.inside("sh", "-c", f"mv {full} {full}.kept && mkdir {full} && mount -t tmpfs -o size=3m none {full}")
    night.mounted = True
    try:
        night.inside("sh", "-c", f"cp -a {full}.kept/. {full}/")
        text = refused(night, *FROM_LAUNCH, code=13, step="publish", why="")
        assert "space" in text or "are free" in text
        night.inside("mount", "-o", "remount,size=64m", full)
        before = night.published()
        mended = night.play("--from", "publish")
        assert mended.returncode == 0, said(mended)
        assert night.published() != before and len(night.runs()) == len(runs) + 1
    finally:
        night.mounted = False
        night.inside("sh", "-c", f"umount {full} && rmdir {full} && mv {full}.kept {full}")


@pytest.mark.parametrize(("what", "step"), [("note", "launch"), ("begin", "trained"), ("begin", "publish")])
def test_the_controller_is_killed_and_the_next_play_goes_on(night: NightHere, what: str, step: str) -> None:
    runs, before = night.runs(), night.published()
    process = night.play_until(what, step, *FROM_LAUNCH)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    again = night.play()
    assert again.returncode == 0, said(again)
    assert f"was cut off in step `{step}`" in said(again)
    assert len(night.runs()) == len(runs) + 1
    assert night.published() != before
    assert [told.splitlines()[0] for told in night.told()] == ["done: "]


def test_a_link_that_goes_and_comes_back_ends_nothing(night: NightHere) -> None:
    night.settings(
        {"steps": 60, "pause_s": 0.1}, host={"connect_timeout_s": 2, "keepalive": {"interval_s": 1, "count": 2}}
    )
    runs = night.runs()
    with (night.folder / "said").open("wb+") as text:
        process = night.play_until("begin", "trained", *FROM_LAUNCH, output=text)
        night.lab.link_down()
        try:
            eventually(lambda: "it is tried again" in (night.folder / "said").read_text(), "it is noticed", 40)
        finally:
            night.lab.link_up()
        assert process.wait(120) == 0, (night.folder / "said").read_text()
    assert "the link is back" in (night.folder / "said").read_text()
    assert len(night.runs()) == len(runs) + 1


def test_the_recovery_goes_back_to_what_the_last_good_run_had(night: NightHere) -> None:
    """A slow run goes on; its settings were put right since."""
    night.settings(FOREVER, {"ktok_per_s": 4.5})
    night.ok("launch")
    night.settings(GOOD)
    runs = night.runs()
    done = night.orch("play", str(PROJECT / "playbooks/recover.yaml"), timeout_s=120.0)
    text = said(done)
    assert done.returncode == 0, text
    said_of = {line["step"]: line["said"] for line in night.record() if line["what"] == "end"}
    said_of_reset = said_of["end the run, free the GPUs, set the cache aside, seed it from the last good one"]
    assert f"run {runs[-1]}: ended" in said_of_reset and "snapshot" in said_of_reset
    assert len(night.runs()) == len(runs) + 1
    (kept,) = [
        path
        for path in (night.folder / "failed").glob("*/run.json")
        if json.loads(path.read_text())["run_id"] == runs[-1]
    ]
    assert (kept.parent / "run.log").stat().st_size > 0


OWN_RUN = """\
target: ct200
steps:
  - launch
  - wait: {until: finished}
  - evaluate: {read: own run, settings: {steps: 1, tau: 3.7}}
"""


def test_a_checkpoint_is_judged_by_a_run_of_its_own(night: NightHere) -> None:
    playbook = night.folder / "own-run.yaml"
    playbook.write_text(OWN_RUN)
    runs = night.runs()
    told = json.loads(night.ok("play", str(playbook), "--json"))
    launched, judging = [run for run in night.runs() if run not in runs]
    assert told["outcome"] == "done" and told["values"]["tau"] == 3.7
    assert (told["values"]["run_id"], told["values"]["evaluated_run"]) == (launched, judging)
    spec = json.loads(Path(night.base, "runs", judging, "run.json").read_text())
    assert spec["resume_from"] == f"{night.base}/runs/{launched}/checkpoints/step-4"
    assert spec["play"] == told["play"]


def test_the_smoke_test_trains_pulls_and_leaves_nothing_behind(night: NightHere) -> None:
    runs, unended = night.runs(), night.not_ended()
    done = night.orch("play", str(PROJECT / "playbooks/smoke.yaml"), "--var=steps=3", timeout_s=120.0)
    assert done.returncode == 0, said(done)
    (run_id,) = set(night.runs()) - set(runs)
    spec = json.loads(Path(night.base, "runs", run_id, "run.json").read_text())
    assert (spec["settings"]["steps"], spec["settings"]["target.steps"]) == (3, 20)
    (pulled,) = (night.folder / "pulled").glob("*/run.json")
    assert json.loads(pulled.read_text())["run_id"] == run_id and "step 3/3" in (pulled.parent / "run.log").read_text()
    ended = {line["step"]: line["said"] for line in night.record() if line["what"] == "end"}
    assert list(ended) == [
        *("guard", "deploy", "launch", "it trains", "trained", "evaluate", "nothing is left behind", "pull")
    ], ended
    assert night.not_ended() == unended and "3.2" in ended["evaluate"]

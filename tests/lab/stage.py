"""The user's set-up on an embedded lab, in small: a venv whose torch loads its libraries, a model file outside of the
release, compile caches in /tmp and ~/.cache, data; and a training that says what a story tells it to.

Rule: what can be real on a CPU is: packages, imports, files, caches on a disk, processes, tmux. A story gives only what
a GPU gives: rates, memory, and the texts that one H200 recorded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.lab.surface import Lab
from remote_payload import contract
from tests.lab.place import Place, said
from tests.made_venv import MadeVenv
from tests.recordings import load
from tests.waiting import eventually

TRAIN = '''\
"""Imports what a training imports, then says what story.json tells it to."""
import json, os, sys, time

import torch

stage = os.environ["STAGE"]
sys.path.insert(0, stage)
import dflash_model

with open(stage + "/story.json") as stream:
    story = json.load(stream)
for name, text in story["files"].items():
    with open(os.path.join(os.environ["ORCH_RUN_DIR"], name), "w") as stream:
        stream.write(text)
if story["strays"]:
    import subprocess
    argv = [story["python"], "-IS", story["holder"], "--deaf", *story["strays"]]
    left = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    left.stdout.readline()
print(story["log"], end="", flush=True)
open(os.path.join(os.environ["ORCH_RUN_DIR"], "told"), "w").close()
while story["goes_on"]:
    time.sleep(0.05)
sys.exit(story["exit_code"])
'''
MODEL = '''\
"""The drafter."""


def forward(layer, hidden, mask):
    return layer.self_attn(hidden, mask)
'''
GRAPHS = 60
WARM_BYTES = 353_000_000
GOOD_PER_S = 21_200.0
GPU_MIB = (61_000.0,) * 5 + (72_000.0,) * 3
PEAK_MIB = 60_000.0
TORCH = {"torch": "2.11.0+cu128", "cuda": "12.8", "transformers": "5.6.0", "triton": None}
"""Loaded versions of the stage; the recordings are of 2.11.0+cu130."""
LINE_S = 20.0


@dataclass(frozen=True)
class Story:
    """What a run says of itself, as if it had trained for `minutes` until now."""

    rate: float | None = GOOD_PER_S
    """Tokens a second; None: it never got to a step."""
    minutes: float = 20.0
    wobble: float = 0.29
    """Windows of 20 s vary 1.8 times from the lowest to the highest."""
    swing: float = 0.0
    """How much of its highest use a GPU's memory goes down by."""
    peak_mib: float = PEAK_MIB
    phase: str = "done"
    exit_code: int = 0
    goes_on: bool = False
    log: str | None = None
    """None: lines with its rate."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of torch._dynamo.config that are not at their defaults."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    writes: bool = True
    """False: a training that only prints."""
    strays: tuple[str, ...] = ()
    """`GPU=MiB` of a child that outlives it and does not hear TERM."""

    def told(self, runtime: Mapping[str, Any], now_s: float) -> dict[str, Any]:
        rates = self._rates()
        began_s = now_s - LINE_S * len(rates)
        lines = [
            {
                "time": began_s + LINE_S * number,
                "step": 20 * number,
                "loss": 2.0,
                "tokens_per_s": rate,
                "gpu_memory_used_mib": [gpu * (1 - self.swing * (number % 4) / 3) for gpu in GPU_MIB],
                "peak_memory_mib": [self.peak_mib] * 8,
            }
            for number, rate in enumerate(rates, start=1)
        ]
        status = {
            "phase": self.phase,
            "step": 20 * len(rates) or None,
            "total_steps": 3000,
            "tokens_per_s": self.rate,
            "updated_at": now_s,
            "phase_started_at": began_s,
            **self.status,
        }
        changed = {"torch._dynamo.config": dict(self.settings)} if self.settings else {}
        facts = {
            **runtime,
            "compiler_settings": {**runtime["compiler_settings"], **changed},
            "replaced_functions": dict(self.replaced),
        }
        files = {contract.STATUS: json.dumps(status), contract.RUNTIME: json.dumps(facts)}
        if lines:
            files[contract.METRICS] = "".join(json.dumps(line) + "\n" for line in lines)
        log = self.log
        if log is None:
            log = "".join(
                f"step {20 * n}/3000 loss 2.000 {rate / 1000:.1f} Ktok/s\n" for n, rate in enumerate(rates, start=1)
            )
        return {
            "files": files if self.writes else {},
            "log": log,
            "goes_on": self.goes_on,
            "strays": self.strays,
            "exit_code": self.exit_code,
        }

    def _rates(self) -> list[float]:
        if self.rate is None:
            return []
        turns = (-1.0, 0.6, -0.3, 1.0, 0.0)
        return [self.rate * (1 + self.wobble * turns[n % 5]) for n in range(int(self.minutes * 60 / LINE_S))]


@dataclass(frozen=True)
class Answer:
    run_id: str | None
    doctor: Mapping[str, Any]
    diff: tuple[str, ...]
    doctor_s: float
    """From the command's start to its answer."""

    @property
    def ids(self) -> list[str]:
        """Of the findings above info, the cause first."""
        return [one["id"] for one in self.doctor["findings"] if one["severity"] != "info"]


class Stage:
    """One good run is there, marked good and found well, at 21.2 Ktok/s with a warm cache of 353 MB."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self.lab, self.goes_on = lab, False
        self.place = Place(lab, folder, name)
        self.root = Path(self.place.base).parent
        self.venv = MadeVenv(self.root / "venv")
        self.venv.install_torch("cu128")
        for package, version in (("transformers", "5.6.0"), ("datasets", "4.0.0"), ("wandb", "0.20.1")):
            self.venv.install(package, version)
        self.model = self.root / "dflash_model.py"
        self.model.write_text(MODEL)
        self.inductor = self.root / "tmp/torchinductor_root"
        self.extensions = self.root / ".cache/torch_extensions"
        self.warm()
        self.data = self.root / "data"
        self.data.mkdir()
        for number in range(9):
            (self.data / f"part-{number}.jsonl").write_text('{"text": "a"}\n' * 100)
        (self.place.payload / "foreign.py").unlink()
        (self.place.payload / "train.py").write_text(TRAIN)
        self.runtime = {name: value for name, value in load("healthy_cold").runtime.items() if name not in LEFT_OUT}
        self.runtime |= {name: value for name, value in TORCH.items() if value is not None}
        self.write()
        self.place.ok("deploy")
        self.good = self.launch(Story())
        self.place.ok("runs", "mark", "last", "good", "--note", "902K samples, warm cache")
        self.place.ok("doctor")

    def write(self, **changes: Any) -> None:
        payload: dict[str, Any] = {
            "command": ["python", "train.py"],
            "python": str(self.venv.python),
            "variables": {"STAGE": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"},
            "settings": {"steps": 3000},
            "topology": {"targets": 5, "drafters": 3},
            "data": str(self.data),
            "caches": {"inductor": str(self.inductor), "extensions": str(self.extensions)},
            "expected": {"hashes": {str(self.model): f"sha256:{sha256(MODEL)}"}},
            "devices": 0,
        }
        self.place.write(**{**payload, **changes})

    def warm(self, graphs: int = GRAPHS, size: int = WARM_BYTES) -> None:
        """As Inductor leaves its cache: graphs below fxgraph/, code beside them. Sparse: it takes no room."""
        for number in range(graphs):
            folder = self.inductor / "fxgraph" / f"{number % 64:02x}" / f"f{number:050x}"
            folder.mkdir(parents=True)
            (folder / "graph").write_bytes(b"graph")
        code = self.inductor / "ab"
        code.mkdir(parents=True)
        with (code / "cab.so").open("wb") as stream:
            stream.truncate(size)
        self.extensions.mkdir(parents=True, exist_ok=True)
        (self.extensions / "ext.so").write_bytes(b"so")

    def lose_cache(self) -> None:
        shutil.rmtree(self.inductor)
        shutil.rmtree(self.extensions)

    @property
    def release(self) -> Path:
        return Path(os.path.realpath(self.root / "orch/current"))

    def launch(self, story: Story, *words: str) -> str:
        """The run's id. It has ended, unless the story goes on."""
        told = story.told(self.runtime, time.time())
        told |= {"python": os.path.realpath(sys.executable), "holder": f"{self.lab.shared_seen_at}/hold_gpu.py"}
        (self.root / "story.json").write_text(json.dumps(told))
        before = self._runs()
        done = self.place.orch("launch", *words, *(() if story.goes_on else ("--wait", "end")))
        new = self._runs() - before
        assert len(new) == 1, said(done)
        run_id = new.pop()
        self.goes_on = story.goes_on
        if story.goes_on:
            eventually((self.root / "orch/runs" / run_id / "told").exists, "the story is told")
        return run_id

    def pane(self, run_id: str, *, columns: int, lines: int) -> str:
        """What polling by hand shows of the run's log: a tmux window of that width, from the last lines on."""
        socket = str(self.root / "pane.sock")
        tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
        script = 'cat "$1"; exec sleep 60'
        log = self.root / "orch/runs" / run_id / contract.RUN_LOG
        size = ["-x", str(columns), "-y", "24"]
        subprocess.run([*tmux, "new-session", "-d", *size, "sh", "-c", script, "sh", str(log)], check=True)
        try:

            def shown() -> str:
                argv = [*tmux, "capture-pane", "-p", "-S", f"-{lines}"]
                return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

            return eventually(lambda: text if "not supported" in (text := shown()) else "", "the log in the pane")
        finally:
            subprocess.run([*tmux, "kill-server"], check=True)

    def _runs(self) -> set[str]:
        return {path.name for path in (self.root / "orch/runs").glob("2*")}

    def ask(self, run_id: str | None, *words: str) -> Answer:
        """words: of orch diff."""
        began = time.monotonic()
        done = self.place.orch("doctor", "--json")
        doctor_s = time.monotonic() - began
        assert done.returncode in (0, 1), said(done)
        diff = self.place.orch("diff", *words)
        assert diff.returncode in (0, 1), said(diff)
        lines = tuple(diff.stdout.decode().splitlines())
        return Answer(run_id, json.loads(done.stdout), lines, doctor_s)

    def findings(self) -> list[Any]:
        """What doctor says above info."""
        done = self.place.orch("doctor", "--json")
        assert done.returncode in (0, 1), said(done)
        told = json.loads(done.stdout)["findings"]
        assert (done.returncode == 0) == all(one["severity"] == "info" for one in told), told
        return [one for one in told if one["severity"] != "info"]

    @contextmanager
    def as_it_was(self) -> Iterator[None]:
        """All of the target is put back afterwards, and the run that goes on is ended."""
        kept, runtime = self.root.with_name(self.root.name + ".kept"), dict(self.runtime)
        copy(self.root, kept)
        try:
            yield
        finally:
            if self.goes_on:
                self.place.orch("stop", "--kill", "--timeout", "0")
            self.write()
            self.runtime = runtime
            shutil.rmtree(self.root)
            kept.rename(self.root)


LEFT_OUT = (
    "engine",
    "data",
    "ranks",
    "pid",
    "executable",
    "torch_git",
    "torch_path",
    "python",
    "cudnn",
    "nccl",
    "triton",
)
"""Of the recorded runtime.json: what is said of its own machine, and that it is the trainer that ships."""


def copy(source: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(to)], check=True)


def sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def recorded(name: str, **changes: Any) -> Story:
    """What an H200 said: its log, its torch settings and replaced functions; how it ended."""
    recording = load(name)
    last = recording.snapshots[-1]["status"]
    code = recording.raw["exit_code"]
    dynamo = recording.runtime["compiler_settings"]["torch._dynamo.config"]
    story = Story(
        rate=None,
        phase=last["phase"],
        log=recording.log,
        exit_code=code if code >= 0 else 1,
        goes_on=code < 0,
        settings=dynamo,
        replaced=recording.runtime["replaced_functions"],
        status={"step": last["step"], "detail": last["detail"], "compiled": last["compiled"]},
    )
    return replace(story, **changes)

"""orch adopt on the real lab: the user's layout, a training that somebody started by hand in their own tmux."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.place import Place, said
from tests.waiting import eventually

numbers = itertools.count(1)
MODEL = "def step(number):\n    return 12.5\n"
TRAIN = """\
import os, pathlib, sys, time
import dflash_model
graph = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "fxgraph", "aa", "key")
graph.mkdir(parents=True, exist_ok=True)
(graph / "entry").write_text("x")
root = pathlib.Path(__file__).parent
for number in range(1, 10**6):
    print(f"step {number} loss {1 / number:.4f} {dflash_model.step(number)} Ktok/s", flush=True)
    if (root / "end").exists():
        sys.exit(0)
    time.sleep(0.05)
"""


class Users(Place):
    """What the user has: a folder with the model, a venv of its own, a tmux session on the default server."""

    def __init__(self, lab: RealLab, folder: Path, name: str) -> None:
        super().__init__(lab, folder, name)
        self.root = self.base.rpartition("/")[0]
        self.session = f"dflash-{name}"
        self.write(
            command=["python3", "train.py"],
            session=self.session,
            topology={"targets": 5, "drafters": 3},
            devices=0,
            caches={"inductor": f"{self.root}/torchinductor_root"},
        )

    def put(self, path: str, text: str) -> None:
        done = self.lab.run(
            self.argv("exec", "--", "sh", "-c", 'mkdir -p $(dirname "$1") && cat > "$1"', "sh", f"{self.root}/{path}"),
            cwd=self.folder,
            env=self.environment(),
            timeout_s=60.0,
            stdin=text.encode(),
        )
        assert done.returncode == 0, said(done)

    def begin(self) -> None:
        line = f"cd {self.root} && TORCHINDUCTOR_CACHE_DIR={self.root}/torchinductor_root venv/bin/python train.py"
        self.inside("tmux", "new-session", "-d", "-s", self.session, "-x", "80", "-y", "24", "sh")
        self.inside("tmux", "send-keys", "-t", f"={self.session}:", f"rm -f {self.root}/end; {line}", "Enter")
        eventually(lambda: "step 3 loss" in self.screen(), "the training prints")

    def screen(self) -> str:
        return self.inside("tmux", "capture-pane", "-p", "-J", "-t", f"={self.session}:")

    def finish(self) -> None:
        self.inside("touch", f"{self.root}/end")
        eventually(lambda: self.status()["run"]["state"]["phase"] != "running", "the training has ended")

    def clean(self) -> None:
        self.orch("exec", "--", "tmux", "kill-session", "-t", f"={self.session}")
        super().clean()


@pytest.fixture
def users(real_lab: RealLab, tmp_path: Path) -> Iterator[Users]:
    users = Users(real_lab, tmp_path, f"n{next(numbers)}")
    yield users
    users.clean()


@pytest.mark.real_lab
def test_a_run_that_orch_did_not_start_gets_a_record_and_is_compared(users: Users) -> None:
    users.put("dflash_model.py", MODEL)
    users.put("train.py", TRAIN)
    users.inside("python3", "-m", "venv", "--without-pip", f"{users.root}/venv")
    users.inside("sh", "-c", f"cd {users.root} && ln -s $(ls -d venv/lib/*/site-packages) site")
    users.put("site/torch/version.py", "__version__ = '2.11.0+cu128'\ncuda = '12.8'\ngit_version = 'a'\nhip = None\n")
    users.put("site/torch/__init__.py", "raise SystemExit('torch was imported')\n")
    users.put("site/torch-2.11.0+cu128.dist-info/METADATA", "Name: torch\nVersion: 2.11.0+cu128\n")
    nothing = users.orch("adopt", "nowhere")
    assert nothing.returncode == 10 and b"there is no tmux session nowhere" in nothing.stderr

    users.begin()
    other = users.orch("adopt", "--pid", "1")
    assert other.returncode == 10 and f"there is no process 1 in session {users.session}".encode() in other.stderr
    first = json.loads(users.ok("adopt", "--json"))
    assert first["command"][-1] == "train.py" and first["folder"] == users.root and first["log"] == "pane"
    again = users.orch("adopt")
    assert again.returncode == 9 and f"    run {first['run_id']}\n" in said(again), said(again)
    assert users.orch("launch").returncode in (9, 10), "it holds live.lock like any other run"
    status = users.status()
    assert (status["run"]["run_id"], status["run"]["state"]["phase"]) == (first["run_id"], "running")
    eventually(lambda: (users.status()["throughput"] or {}).get("step", 0) > 5, "its log is followed")
    shown = json.loads(users.ok("runs", "show", "last", "--json"))
    identity = shown["fingerprint"]["identity"]
    assert identity["torch"]["version"] == "2.11.0+cu128" and identity["torch"]["cuda"] == "12.8"
    assert identity["packages"]["torch"] == "2.11.0+cu128" and set(identity["release"]["listing"]) == {
        "dflash_model.py",
        "train.py",
    }
    users.finish()
    (ended,) = json.loads(users.ok("runs", "--json"))["runs"]
    assert ended["phase"] == "ended, outcome unknown" and "adopted" in ended["outcome"] and ended["adopted"]
    assert ended["shape"] == {"payload": "foreign", "targets": 5, "drafters": 3}
    assert ended["ended_at"] > ended["started_at"] and ended["cache_after"]["entries"] == 1
    assert ended["throughput"]["rate"]["per_s"] == 12500.0
    log = users.ok("logs", first["run_id"])
    assert "step 1 loss 1.0000" in log and "step 6 loss" in log and "Traceback" not in log

    users.ok("runs", "mark", "last", "good", "--note", "by hand")
    users.put("dflash_model.py", MODEL.replace("12.5", "4.6"))
    users.inside("tmux", "kill-session", "-t", f"={users.session}")
    users.begin()
    users.ok("adopt")
    done = users.orch("diff")
    assert done.returncode == 1, said(done)
    head, change = done.stdout.decode().splitlines()[:2]
    assert f"last good {first['run_id']} (marked good: by hand" in head and "dflash_model.py changed" in change
    assert "+    return 4.6" in done.stdout.decode(), said(done)
    assert "2 differences" in head or "1 difference" in head, said(done)
    users.ok("stop")
    assert users.status()["run"]["state"]["phase"] != "running"

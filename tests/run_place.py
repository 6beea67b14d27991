"""One target's <base> in a temporary folder, with the run ops as the controller would call them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.agent.far import observe, process, records, session, start, stop
from orchestrator.agent.far.channel import Channel
from tests.waiting import eventually

GRACEFUL = """
import signal, sys, time
def stop(number, frame):
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
print("ready", flush=True)
while True: time.sleep(0.02)
"""
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('child', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
print("ready", flush=True)
while True: time.sleep(0.02)
"""


TRAINING = """
import signal, sys, time, os
print("training", os.environ["ORCH_RUN_ID"], flush=True)
deadline = time.time() + 60
while time.time() < deadline:
    time.sleep(0.02)
"""


class Place:
    """One target's <base>, and the ops as the controller would call them."""

    def __init__(self, base: Path):
        self.base = base
        self.events = []
        self.made = 0

    def call(self, op, **params):
        channel = Channel(1, lambda header, body: self.events.append(header["data"]))
        return op(dict(params, base=str(self.base)), b"", channel)

    def start(self, source, *, run_id=None, argv=None, **params):
        self.made += 1
        run_id = run_id or f"20261129-120000-{self.made:04d}"
        work = self.base / "work"
        work.mkdir(exist_ok=True, parents=True)
        script = work / f"{run_id}.py"
        script.write_text(source)
        params.setdefault("watch_s", 0)
        params.setdefault("session", None)
        params.setdefault("python", sys.executable)
        argv = argv or ["python", str(script), "--an", "argument with 'all' $kinds;"]
        return self.call(start.start_run, run_id=run_id, argv=argv, cwd=str(work), **params)

    def folder(self, answer):
        return self.base / "runs" / answer["run_id"]

    def facts(self, run_id=None, tail=1 << 20):
        return self.call(observe.run_facts, run_id=run_id, log_tail_bytes=tail)

    def exit_of(self, answer):
        path = self.folder(answer) / "exit.json"
        eventually(path.exists, "exit.json")
        return json.loads(path.read_text())

    def log(self, answer):
        return (self.folder(answer) / "run.log").read_bytes()

    def wrapper_pid(self, answer):
        return json.loads((self.folder(answer) / "wrapper.json").read_text())["wrapper"]["pid"]

    def clean(self):
        for run_id in records.run_ids(str(self.base)):
            run = stop.RunProcesses(str(self.base), run_id)
            for stat in run.living():
                process.send_signal_to(stat, signal.SIGKILL)
            if run.wrapper:
                eventually(lambda run=run: not process.is_alive(run.wrapper), "the wrapper's end")
        socket = session.socket_path(str(self.base))
        if os.path.exists(socket):
            subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False)


def ready(place, answer, word=b"ready"):
    eventually(lambda: word in place.log(answer), "the training is ready")

"""A training that fills the disk and dies of it: its end is recorded all the same."""

import json
import os
import subprocess
import sys

import pytest

IN_A_SMALL_FILE_SYSTEM = """
import json, pathlib, sys
from tests.run_place import Place
place = Place(pathlib.Path(sys.argv[1]) / "orch")
answer = place.start('''
import os, sys, time
while not os.path.exists(os.environ["ORCH_RUN_DIR"] + "/wrapper.json"): time.sleep(0.01)
with open(os.environ["ORCH_RUN_DIR"] + "/data", "wb", buffering=0) as stream:
    while True: stream.write(bytes(4096))
''', watch_s=30)
print(json.dumps(answer["ended"]))
place.clean()
"""

FULL_AT_THE_START = """
import json, pathlib, sys
from orchestrator.agent.far import start
from orchestrator.agent.far.errors import OpError
from tests.run_place import Place
place = Place(pathlib.Path(sys.argv[1]) / "orch")
place.start("pass", watch_s=30)
whole = start._start_wrapper
def fill(*arguments):
    with open(sys.argv[1] + "/filler", "wb", buffering=0) as stream:
        try:
            while True: stream.write(bytes(4096))
        except OSError:
            return whole(*arguments)
start._start_wrapper = fill
try:
    answer = place.start("import time; time.sleep(60)", run_id="r2")
except OpError as error:
    answer = [error.kind, error.message, place.facts("r2")[0]["run"]["training_alive"]]
print(json.dumps(answer))
place.clean()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a small file system of its own")
@pytest.mark.parametrize("script", [IN_A_SMALL_FILE_SYSTEM, FULL_AT_THE_START], ids=["later", "at the start"])
def test_the_exit_record_has_its_room(tmp_path, script):
    mount = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, sys.executable, script]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONPATH=os.getcwd())
    )
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    if script is FULL_AT_THE_START:
        kind, message, alive = ended
        assert (kind, alive) == ("disk_full", False) and "No space left" in message
        return
    assert ended["exit_code"] == 1 and ended["max_rss_kib"] > 0

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
import os, sys
with open(os.environ["ORCH_RUN_DIR"] + "/data", "wb", buffering=0) as stream:
    while True: stream.write(bytes(4096))
''', watch_s=30)
print(json.dumps(answer["ended"]))
place.clean()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a small file system of its own")
def test_the_exit_record_has_its_room(tmp_path):
    mount = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, sys.executable, IN_A_SMALL_FILE_SYSTEM]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONPATH=os.getcwd())
    )
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert ended["exit_code"] == 1 and ended["max_rss_kib"] > 0

"""`orch status --watch --json`: one connection, everything that happens to the run in it, and a clean end."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said
from tests.lab.watching import watching

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"w{next(numbers)}")
    yield place
    place.clean()


def test_a_run_begins_goes_on_and_fails_while_it_is_watched(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "50", "0.1", "fail"])
    place.ok("deploy")
    with watching(place) as watch:
        assert watch.records[0]["run"] is None
        watch.until(lambda r: len(r["gpus"] or []) == 8 and r["gpus_age_s"] < 20, "the GPUs")
        place.ok("launch")
        first = watch.until(lambda r: r["run"] and r["run"]["state"]["phase"] == "running", "the run")
        going = watch.until(lambda r: (r["throughput"] or {}).get("step"), "its steps")
        assert going["throughput"]["source"] == "log" and going["throughput"]["rate"]["per_s"] == 12500.0
        later = watch.until(lambda r: r["throughput"]["step"] > going["throughput"]["step"], "more steps")
        assert later["last_lines"][-1].startswith(f"step {later['throughput']['step']} loss")
        failed = watch.until(lambda r: r["failure"], "its end")
        assert failed["run"]["run_id"] == failed["failure"]["run_id"] == first["run"]["run_id"]
        assert failed["failure"]["exception"] == "ValueError: the loss is nan: ü€"
        assert "in inner" in failed["failure"]["traceback"]
        place.write(command=["python3", "foreign.py", "10000", "0.1"])
        place.ok("launch")
        second = watch.until(lambda r: r["run"]["run_id"] != first["run"]["run_id"], "the next run")
        assert second["failure"]["run_id"] == first["run"]["run_id"], "an earlier failure is still told"
        assert watch.end() == 130 and watch.said() == ""
        assert all(r["link"]["connected"] for r in watch.records)


def test_it_ends_cleanly_when_it_is_terminated_or_its_reader_leaves(place: Place) -> None:
    with watching(place) as watch:
        assert watch.end(signal.SIGTERM) == 143 and watch.said() == ""
    head = 'set -o pipefail; "$@" | head -n 1; echo "${PIPESTATUS[0]}"'
    argv = ["bash", "-c", head, "bash", *place.argv("status", "--watch", "--json")]
    done = place.lab.run(argv, cwd=place.folder, env=place.environment(), timeout_s=60.0)
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith('{"schema": "orch.status/2"') and lines[1] == "0", said(done)
    assert done.stderr == b""


def test_errors_before_the_first_report_have_their_own_exit_codes(place: Place) -> None:
    place.write(host={"address": "127.0.0.1", "port": 1}, command=["true"])
    done = place.orch("status", "--watch", "--json")
    assert done.returncode == 4 and done.stdout == b""

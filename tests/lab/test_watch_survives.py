"""A watch while links, containers, agents and servers go and come: the same watch, the truth in each line of it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import Lab
from tests.lab.place import Place
from tests.lab.watching import watching
from tests.waiting import eventually

numbers = itertools.count(1)

KILL_AGENTS = r"""
for cmdline in /proc/[0-9]*/cmdline; do
  if tr '\0' ' ' <"$cmdline" 2>/dev/null | grep -q '^[^ ]*python[^ ]* -I -S -c exec('; then
    pid=${cmdline#/proc/}; kill -9 "${pid%/cmdline}" && echo "${pid%/cmdline}"
  fi
done
"""
COMMAND_LINES = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"
ORPHANS = """
for stat in /proc/[0-9]*/stat; do
  read -r pid name state parent rest <"$stat" && [ "$parent" = 1 ] && tr '\\0' ' ' <"/proc/$pid/cmdline"
done 2>/dev/null; true
"""
LAST_PID = "read a b c d last </proc/loadavg; echo $last"


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    yield from make_place(either_lab, tmp_path)


@pytest.fixture
def real_place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    yield from make_place(real_lab, tmp_path)


def make_place(lab: Lab, folder: Path) -> Iterator[Place]:
    place = Place(lab, folder, f"v{next(numbers)}")
    # A dead link is seen within seconds, and the connection is no other test's.
    place.write(
        host={"keepalive": {"interval_s": 1, "count": 2}, "connect_timeout_s": 4},
        command=["python3", "foreign.py", "9999", "0.1"],
    )
    yield place
    place.clean()


def in_container(lab: Lab, script: str) -> str:
    argv = lab.far_command(["sh", "-c", script], 200)
    return subprocess.run(argv, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout.decode()


def step(record: dict[str, Any]) -> int:
    return (record["throughput"] or {}).get("step") or 0


def is_lost(record: dict[str, Any]) -> bool:
    return not record["link"]["connected"]


def test_the_link_goes_down_and_comes_back(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch")
    with watching(place) as watch:
        before = watch.until(lambda r: step(r) > 0, "steps")
        place.lab.link_down()
        try:
            lost = watch.until(is_lost, "the loss is seen")
            older = watch.until(lambda r: r["link"]["facts_age_s"] > lost["link"]["facts_age_s"] + 3, "the age grows")
        finally:
            place.lab.link_up()
        assert older["run"]["run_id"] == before["run"]["run_id"] and older["link"]["why"]
        assert older["link"]["since_s"] >= 3 and step(older) >= step(before)
        back = watch.until(lambda r: r["link"]["connected"], "the link is back", timeout_s=60.0)
        assert back["link"]["facts_age_s"] < 2 and back["link"]["why"] is None
        watch.until(lambda r: step(r) > step(older), "it goes on")
        ages = [r["link"]["facts_age_s"] for r in watch.records if is_lost(r)]
        assert all(later - earlier < 3 for earlier, later in itertools.pairwise(sorted(ages))), "a report every second"
        assert watch.end() == 130 and watch.said() == ""


def test_the_container_stops_and_starts(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch")
    with watching(place) as watch:
        running = watch.until(lambda r: step(r) > 0, "steps")
        place.lab.stop_container()
        try:
            stopped = watch.until(lambda r: "not running" in (r["link"]["why"] or ""), "why it is lost")
            assert stopped["run"]["state"]["phase"] == "running", "what was last known"
        finally:
            place.lab.start_container()
        back = watch.until(lambda r: r["link"]["connected"], "the container is back", timeout_s=60.0)
        assert back["run"]["run_id"] == running["run"]["run_id"] == back["failure"]["run_id"]
        assert back["run"]["state"]["phase"] == "ended, outcome unknown"
        assert watch.end() == 130


def test_the_agent_is_killed(place: Place) -> None:
    place.ok("deploy")
    place.lab.set_gpus({"mode": "hang"})  # it would not notice by itself that nobody reads what it says
    try:
        with watching(place) as watch:
            eventually(lambda: "nvidia-smi" in in_container(place.lab, COMMAND_LINES), "nvidia-smi runs")
            assert in_container(place.lab, KILL_AGENTS).split()
            lost = watch.until(is_lost, "the loss is seen")
            assert "the agent's stream ended" in lost["link"]["why"]
            eventually(lambda: "nvidia-smi" not in in_container(place.lab, ORPHANS), "the killed agent's child is gone")
            watch.until(lambda r: r["link"]["connected"], "another agent")
            assert watch.end() == 130
        eventually(lambda: "nvidia-smi" not in in_container(place.lab, COMMAND_LINES), "nothing is left")
    finally:
        place.lab.set_gpus({})


@pytest.mark.real_lab
def test_sshd_restarts(real_place: Place, real_lab: RealLab) -> None:
    with watching(real_place) as watch:
        real_lab.restart_sshd()
        seen = len(watch.records)
        eventually(lambda: len(watch.records) > seen + 2, "reports")
        assert not any(map(is_lost, watch.records)), "a restart leaves sessions alone"
        real_lab.stop_sshd()
        try:
            real_lab.host_run(["sh", "-c", KILL_AGENTS.replace("^[^ ]*python[^ ]* -I -S -c exec(", "^sshd: root")])
            refused = watch.until(lambda r: "refused" in (r["link"]["why"] or ""), "why it is lost")
            assert is_lost(refused)
        finally:
            real_lab.start_sshd()
        watch.until(lambda r: r["link"]["connected"], "sshd is back")


@pytest.mark.real_lab
def test_twenty_looks_are_one_connection_one_pct_and_no_process_more(real_place: Place, real_lab: RealLab) -> None:
    real_place.write(
        host={"keepalive": {"interval_s": 3}}, session="train", command=["python3", "foreign.py", "9999", "0.1"]
    )
    real_place.ok("deploy")
    real_place.ok("launch")
    real_place.write(
        host={"keepalive": {"interval_s": 4}}, session="train", command=["true"]
    )  # a connection of its own

    def logins() -> int:
        return real_lab.host_run(["cat", "/var/log/sshd.log"]).stdout.count(b"Accepted publickey")

    before = logins(), real_lab.pct_starts()
    with watching(real_place) as watch:
        watch.until(lambda r: r["gpus"] and r["cache"] and step(r), "everything was asked once")
        assert watch.records[-1]["run"]["session"]["present"]
        at_once = -int(in_container(real_lab, LAST_PID)) + int(in_container(real_lab, LAST_PID))
        begun, looks = int(in_container(real_lab, LAST_PID)), len(watch.records)
        eventually(lambda: len(watch.records) >= looks + 20, "twenty looks", timeout_s=60.0)
        started = int(in_container(real_lab, LAST_PID)) - begun
        assert (logins() - before[0], real_lab.pct_starts() - before[1]) == (1, 1)
        # The training starts none either; a thread counts too, and the cache is counted in one, each half minute.
        assert started - at_once <= 2, f"{started} processes in 20 looks, of which {at_once} for asking"
        assert watch.end() == 130

"""Parsers of /proc, and identities of real processes of this machine."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.far import process

numbers = st.integers(min_value=0, max_value=2**40)


@given(
    comm=st.binary(min_size=0, max_size=20).filter(lambda b: b"\0" not in b),
    state=st.sampled_from("RSDZTtXxI"),
    values=st.lists(numbers, min_size=48, max_size=48),
)
def test_a_stat_line_is_read_whatever_the_command_is_called(comm, state, values):
    line = b"%d (%s) %s %s\n" % (values[0], comm, state.encode(), b" ".join(b"%d" % v for v in values[1:]))
    stat = process.parse_stat(line)
    assert (stat.pid, stat.comm, stat.state) == (values[0], comm, state)
    assert (stat.ppid, stat.pgrp, stat.session) == tuple(values[1:4])
    assert stat.num_threads == values[17] and stat.start_ticks == values[19]


@given(st.binary(max_size=200))
def test_anything_else_is_a_value_error(data):
    with contextlib.suppress(ValueError):
        process.parse_stat(data)


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\0" not in b)))
def test_words_come_back(words):
    assert [os.fsencode(w) for w in process.parse_words(b"".join(w + b"\0" for w in words))] == words


def test_cgroups_of_both_versions():
    assert process.parse_cgroup("0::/lxc/200/ns/.lxc\n") == {"": "/lxc/200/ns/.lxc"}
    both = process.parse_cgroup("5:cpu,cpuacct:/a:b\n4:memory:/m\n0::/\nrubbish\n")
    assert both == {"cpu": "/a:b", "cpuacct": "/a:b", "memory": "/m", "": "/"}


def test_oom_kills():
    assert process.parse_oom_kills("low 0\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
    assert process.parse_oom_kills("low 0\n") is None
    assert process.parse_oom_kills("oom_kill many\n") is None


def test_an_identity_ends_with_its_process_and_is_not_inherited():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process.identity_of(child.pid)
    assert process.is_alive(identity)
    assert not process.is_alive(dict(identity, start_ticks=identity["start_ticks"] + 1))
    assert not process.is_alive(dict(identity, boot_id="another"))
    assert not process.is_alive(dict(identity, init_start_ticks=-1)), "the container was restarted"
    assert not process.send_signal(dict(identity, start_ticks=1), signal.SIGKILL)
    assert process.send_signal(identity, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_alive(identity), "a zombie is dead"
    assert process.identity_of(child.pid) is None
    child.communicate()
    assert not process.is_alive(identity)
    assert not process.send_signal(identity, signal.SIGKILL)


def test_a_group_is_signalled_only_through_its_living_leader():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    identity = process.identity_of(child.pid)
    assert not process.send_signal_to_group(dict(identity, start_ticks=0), signal.SIGKILL)
    assert process.send_signal_to_group(identity, signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM
    child.communicate()


def test_processes_of_a_run_are_found_by_their_environment():
    environment = dict(os.environ, ORCH_RUN_ID="run-x1")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        assert [stat.pid for stat in process.processes_with("ORCH_RUN_ID", "run-x1")] == [child.pid]
        assert process.processes_with("ORCH_RUN_ID", "run-x") == []
        told = process.describe(process.read_stat(child.pid))
        assert told["argv"][-1] == "input()"
    finally:
        child.communicate(b"\n")


def test_start_time_is_near_now():
    import time

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = process.read_stat(child.pid)
    assert process.started_at(stat.start_ticks) == pytest.approx(time.time(), abs=30)
    child.communicate(b"\n")

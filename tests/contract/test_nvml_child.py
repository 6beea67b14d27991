"""NVML as a child of the agent: one lost GPU hides no other, and hanging or crashing harms nobody."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.agent.far import nvml_child
from orchestrator.agent.far.gpus import nodes
from orchestrator.agent.far.nvml_child import Child, NvmlChild, ask_once, is_findable
from tests.nvml_double import NvmlDouble
from tests.waiting import eventually

PROGRAM = Path(nvml_child.__file__).with_name("nvml.py")


@pytest.fixture
def double(tmp_path):
    return NvmlDouble(tmp_path)


@pytest.fixture
def follow(monkeypatch):
    monkeypatch.setattr(nvml_child, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(nvml_child, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(nvml_child, "SILENT_S", 0.5)
    monkeypatch.setattr(nvml_child, "FIRST_ANSWER_S", 1.0)
    made = []

    def make(library):
        made.append(NvmlChild(0.1, library))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        assert not one._thread.is_alive()


def children():
    with open(f"/proc/self/task/{threading.get_native_id()}/children") as stream:
        mine = stream.read().split()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as stream:
            mine += stream.read().split()
    return {int(pid) for pid in mine}


def once(double):
    word, fall_back = ask_once(20.0, threading.Event(), double.library)
    assert not fall_back
    return word


def test_a_look_by_hand_is_a_line_of_all_gpus(double):
    double.set(processes=[{"gpu": 2, "pid": 17, "used_memory_mib": 900}], not_available=["power.draw"])
    argv = [sys.executable, "-I", "-S", str(PROGRAM), "--count", "1", "--library", double.library]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=30)
    told = json.loads(done.stdout)
    assert [gpu["index"] for gpu in told["gpus"]] == list(range(8)) and told["driver"] == "580.95.05"
    gpu = told["gpus"][2]
    assert gpu["processes"] == [[17, 900 * 2**20]] and gpu["memory_used_bytes"] == 900 * 2**20
    assert gpu["power_mw"] is None and gpu["codes"] == {"power_mw": 3}, "what is not supported is null, with its code"
    assert (gpu["temperature_c"], gpu["utilization_percent"], gpu["bus"]) == (61, 100, "00000000:4C:00.0")


def test_a_lost_gpu_hides_no_other_and_keeps_its_name(double, follow):
    following = follow(double.library)
    eventually(lambda: following.word()["told"], "an answer")
    double.set(lost=[3], devices=[{}] * 8)
    told = eventually(
        lambda: (word := following.word()["told"]) and word["gpus"][3]["error"] and word["gpus"], "the loss"
    )
    assert (told[3]["error"]["code"], told[3]["error"]["text"]) == (15, "GPU is lost")
    assert told[3]["name"] == "NVIDIA H200" and "memory_used_bytes" not in told[3]
    assert [gpu["index"] for gpu in told if gpu["error"] is None] == [0, 1, 2, 4, 5, 6, 7]
    double.set()
    eventually(lambda: following.word()["told"]["gpus"][3]["error"] is None, "it is back")


def test_one_that_hangs_is_killed_by_its_pid_and_replaced_while_its_last_word_gets_older(double, follow):
    before = children()
    following = follow(double.library)
    eventually(lambda: following.word()["told"], "an answer")
    (first,) = children() - before
    double.set(mode="hang")
    word = eventually(lambda: (word := following.word())["error"] and word, "it is said")
    assert "has not answered" in word["error"] and word["age_s"] >= 0.5 and len(word["told"]["gpus"]) == 8
    eventually(lambda: first not in children() and children() - before, "another one in its place")
    double.set()
    eventually(lambda: (word := following.word())["error"] is None and word["age_s"] < 0.5, "it answers again")
    assert len(children() - before) == 1


def test_a_crash_is_told_and_it_is_started_again(double, follow):
    following = follow(double.library)
    eventually(lambda: following.word()["told"], "an answer")
    double.set(mode="crash")
    eventually(lambda: following.word()["error"] == "NVML's child was killed by signal 6", "it is said")
    assert not following.is_missing, "it has worked once"
    double.set()
    eventually(lambda: following.word()["error"] is None, "it answers again")


def test_one_that_never_answers_before_it_crashes_is_as_good_as_missing(double, follow):
    double.set(mode="crash")
    following = follow(double.library)
    eventually(lambda: following.is_missing, "it is given up")
    eventually(lambda: not following._thread.is_alive(), "and not tried again")


def test_it_ends_with_its_reader_even_while_a_call_hangs(double):
    double.set(mode="hang")
    child = Child(["--library", double.library])
    pid = child._process.pid
    eventually(lambda: b"libnvidia-ml" in Path(f"/proc/{pid}/maps").read_bytes(), "the call")
    child._process.stdin.close()
    assert child._process.wait(10) == 0


def test_once_hung_missing_crashed_and_refused(double):
    assert len(once(double)["told"]["gpus"]) == 8
    double.set(mode="mismatch")
    failed = once(double)["failed"]
    assert (failed["call"], failed["code"], failed["text"]) == ("nvmlInit_v2", 18, "Driver/library version mismatch")
    assert failed["library"] == double.library and failed["control_node"] in ("ENOENT", None)
    double.set(mode="hang")
    word, fall_back = ask_once(1.0, threading.Event(), double.library)
    assert (word["error"], fall_back) == ("NVML did not answer within 1 s", False), "nvidia-smi would hang as well"
    double.set(mode="crash")
    word, fall_back = ask_once(20.0, threading.Event(), double.library)
    assert fall_back and word["error"] == f"NVML's child was killed by signal {signal.SIGABRT.value}"
    word, fall_back = ask_once(20.0, threading.Event(), "no-such-library.so.1")
    assert fall_back and word["failed"]["call"] == "dlopen"


def test_lines_that_are_none_and_a_child_of_another_mind_are_survived(monkeypatch, follow):
    """The protocol alone, without a library: what is said in two pieces, and words between."""
    script = (
        "import os, time\n"
        'os.write(1, b\'warning: x\\n{"nvml": 1, "gpus": [{"index"\')\ntime.sleep(0.05)\n'
        "os.write(1, b': 0}]}\\n')\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(nvml_child, "sources", lambda: {"nvml.py": script.encode()})
    following = follow("any")
    assert eventually(lambda: following.word()["told"], "an answer")["gpus"] == [{"index": 0}]


def test_a_library_that_is_not_nvmls_is_refused_with_its_code():
    word, fall_back = ask_once(20.0, threading.Event(), "libc.so.6")
    assert (word["failed"]["call"], word["failed"]["code"], fall_back) == ("nvmlInit_v2", 13, False)


def test_no_process_is_started_for_a_library_that_the_loader_cannot_find(tmp_path, monkeypatch):
    assert is_findable(str(tmp_path)), "not known: it may be there"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1 libc.so.6")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert not is_findable(str(tmp_path))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/libnvidia-ml.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/nothing:{tmp_path}/own")
    assert is_findable(str(tmp_path))
    monkeypatch.delenv("LD_LIBRARY_PATH")
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").touch()
    assert is_findable(str(tmp_path))
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"...libnvidia-ml.so.1\0/usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert is_findable(str(tmp_path))
    monkeypatch.setattr(nvml_child, "is_findable", lambda: False)
    monkeypatch.setattr(nvml_child, "Child", lambda words: pytest.fail(f"started {words}"))
    assert ask_once(5.0, threading.Event()) == ({"told": None, "age_s": None, "failed": None, "error": None}, True)
    following = NvmlChild(1.0)
    following.start()
    eventually(lambda: following.is_missing and not following._thread.is_alive(), "it is not tried")


def test_what_the_bus_and_dev_show(tmp_path):
    for number, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x040300"), ("0x1a03", "0x030000")]
    ):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-caps"):
        (tmp_path / "dev" / name).touch()
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC 13\n")
    assert nodes(str(tmp_path)) == {"on_bus": 2, "driver": "580.159.04", "nodes": [0, 10], "uvm": False}
    assert nodes(str(tmp_path / "nothing")) == {"on_bus": None, "driver": None, "nodes": None, "uvm": None}

"""Starting runs for real: what the training sees, how it ends, and who may start at all."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.agent.far import live, records, start, stop
from orchestrator.agent.far.errors import OpError
from tests.run_place import TRAINING
from tests.waiting import eventually


def test_a_run_is_started_recorded_and_ends(place):
    answer = place.start("print('hello'); input_is = open(0).read(); print(repr(input_is)); raise SystemExit(3)")
    assert answer["started"] and answer["session"] is None and answer["attach"] is None
    record = place.exit_of(answer)
    assert (record["exit_code"], record["signal"], record["start_error"]) == (3, None, None)
    assert record["max_rss_kib"] > 1000 and record["user_s"] > 0 and record["ended_at"] >= record["started_at"]
    assert place.log(answer) == b"hello\n''\n"
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    facts, tail = place.facts()
    assert tail == place.log(answer)
    assert facts["run"]["id"] == answer["run_id"] and facts["run"]["exit"] == record
    assert not facts["run"]["training_alive"] and facts["run"]["strays"] == []
    for path in place.folder(answer).iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert place.folder(answer).stat().st_mode & 0o777 == 0o700


def test_what_the_training_sees(place):
    source = (
        "import os, sys, json, signal; print(json.dumps([dict(os.environ), sys.argv[1:], os.getcwd(), "
        "os.getsid(0) == os.getpid(), [int(n) for n in signal.valid_signals() if signal.getsignal(n) is "
        "signal.SIG_IGN], os.read(0, 1).decode(), sorted(os.listdir('/proc/self/fd'))]))"
    )
    environment = {"TRITON_CACHE_DIR": "/x y", "ODD": "a=b\n'$HOME'", "PATH": os.environ["PATH"]}
    answer = place.start(source, environment=environment)
    place.exit_of(answer)
    seen, argv, cwd, leads, ignored, stdin, files = json.loads(place.log(answer))
    assert {name: seen[name] for name in environment} == environment
    assert seen["ORCH_RUN_DIR"] == str(place.folder(answer)) and seen["ORCH_RUN_ID"] == answer["run_id"]
    assert seen["PYTHONUNBUFFERED"] == "1" and seen["HOME"] and seen["LANG"] and seen["USER"]
    assert argv == ["--an", "argument with 'all' $kinds;"]
    assert cwd == str(place.base / "work") and leads and stdin == ""
    assert set(ignored) <= {signal.SIGPIPE, signal.SIGXFSZ}, "python's own"
    assert len(files) <= 5, "0 1 2, the lock, and the folder being listed"


def test_programs_beside_the_interpreter_are_found(place):
    answer = place.start("import os; print(os.environ['PATH'])", python=sys.executable)
    place.exit_of(answer)
    assert place.log(answer).decode().startswith(os.path.dirname(sys.executable) + ":")


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_exit_codes(place, code):
    answer = place.start(f"raise SystemExit({code})", watch_s=20)
    assert answer["started"] and answer["ended"]["exit_code"] == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP, signal.SIGPIPE])
def test_death_by_signal(place, number):
    source = f"import os, signal; signal.signal({int(number)}, signal.SIG_DFL); os.kill(os.getpid(), {int(number)})"
    if number == signal.SIGKILL:
        source = "import os; os.kill(os.getpid(), 9)"
    answer = place.start(source, watch_s=20)
    assert (answer["ended"]["exit_code"], answer["ended"]["signal"]) == (None, number)


def test_an_instant_failure_comes_back_with_its_traceback(place):
    answer = place.start("import not_there_at_all", watch_s=20)
    assert answer["started"] and answer["ended"]["exit_code"] == 1
    assert "ModuleNotFoundError: No module named 'not_there_at_all'" in answer["log_tail"]


@pytest.mark.parametrize(
    ("argv", "error", "says"),
    [
        (["/nowhere/python", "x"], "ENOENT", "/nowhere/python"),
        (["no-such-program-here"], "ENOENT", "no program no-such-program-here on PATH"),
        (["./data.txt"], "EACCES", "Permission denied"),
        (["./no-line.sh"], "ENOEXEC", "not a program"),
        (["./wrong-line.sh"], "ENOENT", "interpreter /no/such/sh"),
    ],
)
def test_what_cannot_be_executed_is_named(place, argv, error, says):
    work = place.base / "work"
    work.mkdir(parents=True)
    (work / "data.txt").write_text("x")
    for name, text in {"no-line.sh": "echo x\n", "wrong-line.sh": "#!/no/such/sh\n"}.items():
        (work / name).write_text(text)
        (work / name).chmod(0o755)
    answer = place.start("", argv=argv)
    assert (answer["started"], answer["reason"]) == (False, "exec")
    assert answer["start_error"]["error"] == error and says in answer["start_error"]["message"]
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    assert place.start(TRAINING)["started"], "the target is free afterwards"


def test_a_missing_folder_is_named(place):
    answer = place.call(start.start_run, run_id="r1", argv=["true"], cwd="/no/such/folder", session=None)
    assert answer["reason"] == "exec" and "/no/such/folder does not exist" in answer["start_error"]["message"]


def test_the_log_keeps_every_byte(place):
    answer = place.start("import sys; sys.stdout.buffer.write(bytes(range(256)) + 'żółw 🐢'.encode() + b'no newline')")
    place.exit_of(answer)
    expected = bytes(range(256)) + "żółw 🐢".encode() + b"no newline"
    assert place.log(answer) == expected
    assert place.facts(tail=10)[1] == b"no newline"
    assert start.log_tail(str(place.folder(answer))).encode("utf-8", "surrogateescape") == expected


def test_a_second_start_is_refused_and_harms_nothing(place):
    first = place.start(TRAINING)
    second = place.start(TRAINING)
    assert (second["started"], second["reason"]) == (False, "busy")
    assert second["live"]["content"]["run_id"] == first["run_id"]
    assert records.run_ids(str(place.base)) == [first["run_id"]]
    assert place.facts()[0]["run"]["training_alive"]


def test_of_two_starts_at_once_exactly_one_wins(place):
    source = "import time; time.sleep(60)"
    for number in range(20):  # a race that is lost once in twenty would show
        with ThreadPoolExecutor(2) as pool:
            answers = list(
                pool.map(lambda run_id: place.start(source, run_id=run_id), (f"r{number}-0", f"r{number}-1"))
            )
        assert sorted(answer["started"] for answer in answers) == [False, True], answers
        winner = next(answer for answer in answers if answer["started"])
        assert place.call(stop.stop_run, run_id=None, wait_s=20)["run_id"] == winner["run_id"]
        eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
        assert len(records.run_ids(str(place.base))) == number + 1


def test_two_wrappers_without_the_start_lock_still_exclude_each_other(place):
    answer = place.start(TRAINING)
    folder = place.base / "runs" / "second"
    folder.mkdir()
    spec = json.loads((place.folder(answer) / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(dict(spec, run_id="second")))
    library = next((place.base / "lib").iterdir())
    done = subprocess.run([sys.executable, "-I", "-S", library, "wrapper", folder], check=False)
    assert done.returncode == 9
    assert json.loads((folder / "refused.json").read_text())["live"]["run_id"] == answer["run_id"]
    assert not (folder / "run.log").exists()
    assert place.facts(answer["run_id"])[0]["run"]["training_alive"]


def test_a_reader_does_not_make_a_start_look_busy(place):
    place.base.mkdir()
    reader = os.open(place.base / "live.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(reader, fcntl.LOCK_SH)
    later = threading.Timer(0.2, os.close, [reader])
    later.start()
    handle = live.acquire(str(place.base))
    later.join()
    assert handle is not None and live.is_held(str(place.base))
    os.close(handle)
    assert not live.is_held(str(place.base))


def test_a_wrapper_that_does_not_come_up_cannot_come_later(place, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(start.sys, "executable", "/bin/true")
        with pytest.raises(OpError) as caught:
            place.start(TRAINING, run_id="late", start_s=0.3)
    assert caught.value.kind == "start_failed"
    folder = place.base / "runs" / "late"
    assert "did not come up" in json.loads((folder / "exit.json").read_text())["start_error"]["message"]
    library = next((place.base / "lib").iterdir())
    assert subprocess.run([sys.executable, "-I", "-S", library, "wrapper", folder], check=False).returncode == 9
    assert not (folder / "run.log").exists() and not live.is_held(str(place.base))


def test_a_start_that_cannot_write_leaves_nothing(place, monkeypatch):
    def full(base):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(start, "install_library", full)
    with pytest.raises(OpError) as caught:
        place.start(TRAINING)
    assert caught.value.kind == "disk_full" and records.run_ids(str(place.base)) == []


def test_an_existing_run_is_not_started_again(place):
    answer = place.start("pass", watch_s=20)
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    with pytest.raises(OpError) as caught:
        place.start("pass", run_id=answer["run_id"])
    assert caught.value.kind == "exists"


@pytest.mark.parametrize("run_id", ["../x", "", "a/b", ".", "x" * 200, "a\n"])
def test_a_run_id_leads_nowhere_else(place, run_id):
    with pytest.raises(OpError) as caught:
        place.call(start.start_run, run_id=run_id, argv=["true"], cwd="/")
    assert caught.value.kind == "bad_request"

"""Every verb on a lab, with a script that knows nothing of orch: what users type, and what they are told."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said
from tests.waiting import eventually

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"t{next(numbers)}")
    yield place
    place.clean()


def test_a_foreign_script_is_deployed_launched_and_recorded(place: Place) -> None:
    assert "is live (was -)" in place.ok("deploy")
    assert "ended well" in place.ok("launch", "--wait", "end")
    status = place.status()
    assert status["run"]["state"]["phase"] == "ended"
    assert status["run"]["state"]["exit"]["exit_code"] == 0
    assert status["last_lines"][-1] == "step 3 loss 0.3333 12.5 Ktok/s"
    assert place.ok("logs").splitlines() == [f"step {n} loss {1 / n:.4f} 12.5 Ktok/s" for n in (1, 2, 3)]
    run_id = str(status["run"]["run_id"])
    for meant in ([], ["last"], [run_id[:-2]]):
        assert place.ok("logs", "-n", "1", *meant) == "step 3 loss 0.3333 12.5 Ktok/s\n"
    for words in (["logs", "nosuch"], ["logs", "/dev/full"], ["publish", "nosuch", "--to", str(place.folder / "to")]):
        done = place.orch(*words)
        assert done.returncode == 2 and run_id in said(done) and "orch runs" in said(done), said(done)
    pulled = place.folder / "pulled"
    place.ok("pull", run_id[:-2], "--to", str(pulled))
    assert (pulled / "run.log").read_text() == place.ok("logs")
    assert {"run.json", "exit.json", "wrapper.json"} <= {path.name for path in pulled.iterdir()}


def test_a_crash_shows_the_whole_traceback_and_its_own_exit_code(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "3", "0.01", "fail"])
    place.ok("deploy")
    done = place.orch("launch", "--wait", "end")
    assert done.returncode == 11
    for text in (said(done), place.ok("status")):
        assert "exit code 1" in text
        assert "Traceback (most recent call last):" in text
        assert "in main" in text and "in inner" in text
        assert "ValueError: the loss is nan: ü€" in text


def test_an_instant_failure_is_told_without_waiting_for_it(place: Place) -> None:
    place.write(command=["python3", "missing.py"])
    place.ok("deploy")
    done = place.orch("launch")
    assert done.returncode == 11
    assert "No such file or directory" in said(done)


def test_a_program_that_is_not_there_starts_nothing(place: Place) -> None:
    place.write(command=["./no-such-program"])
    place.ok("deploy")
    done = place.orch("launch")
    assert done.returncode == 10
    assert "no-such-program" in said(done)


def test_a_live_run_is_never_harmed_by_deploy_and_launch(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    place.ok("launch")
    before = place.status()["run"]
    (place.payload / "foreign.py").write_text("raise SystemExit('the new release')\n")
    assert f"run {before['run_id']} is live" in place.ok("deploy")
    done = place.orch("launch")
    assert done.returncode == 9
    assert before["run_id"] in said(done) and "orch stop" in said(done)
    after = place.status()["run"]
    assert (after["run_id"], after["state"]) == (before["run_id"], before["state"])
    assert "stopped (killed by SIGTERM)" in place.ok("stop")
    assert "nothing is live" in place.ok("stop")
    assert place.orch("launch").returncode == 11


def test_a_run_outlives_a_controller_that_is_killed(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    client = place.popen("launch", "--wait", "end")
    eventually(lambda: place.status()["run"] is not None, "no run came up")
    client.send_signal(signal.SIGKILL)
    client.wait()
    size = place.status()["run"]["log_size_bytes"]
    eventually(lambda: place.status()["run"]["log_size_bytes"] > size, "the log does not grow")
    assert place.status()["run"]["state"]["phase"] == "running"
    place.ok("stop")


def test_ctrl_c_says_what_goes_on(place: Place, tmp_path: Path) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    with (tmp_path / "said").open("wb+") as text:
        client = place.popen("launch", "--wait", "end", stdout=text, stderr=text)
        eventually(lambda: b"started" in (tmp_path / "said").read_bytes(), "it did not start")
        client.send_signal(signal.SIGINT)
        assert client.wait(20) == 130
    assert b"goes on" in (tmp_path / "said").read_bytes()
    assert place.status()["run"]["state"]["phase"] == "running"


def test_stop_without_kill_leaves_a_deaf_training_and_names_it(place: Place) -> None:
    (place.payload / "deaf.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(600)\n"
    )
    place.write(command=["python3", "deaf.py"])
    place.ok("deploy")
    place.ok("launch")
    eventually(lambda: place.ok("logs") == "deaf\n", "it does not speak")
    done = place.orch("stop", "--timeout", "0.5")
    assert done.returncode == 12
    assert "deaf.py" in said(done) and "--kill" in said(done)
    assert place.status()["run"]["state"]["phase"] == "running"
    assert "SIGKILL" in place.ok("stop", "--timeout", "0.5", "--kill")


def test_waiting_has_an_end(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    done = place.orch("launch", "--wait", "end", "--timeout", "0.5")
    assert done.returncode == 12
    assert "it goes on" in said(done)


def test_a_step_that_is_only_printed_is_waited_for(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    for wanted in ("first-step", "step:30"):
        assert ": running, step " in place.ok("launch", "--wait", wanted, timeout_s=20)
        place.ok("stop")
    done = place.orch("launch", "--wait", "step:90000", "--timeout", "3")
    assert done.returncode == 12 and "it goes on, at step " in said(done)


def test_a_printed_step_is_waited_for_beside_a_status_that_tells_of_none(place: Place) -> None:
    writes = """echo '{"phase": "training", "compiled": {"fallbacks": 0}}' >$ORCH_RUN_DIR/status.json"""
    place.write(command=["sh", "-c", f"{writes}; exec python3 foreign.py 100000 0.02"])
    place.ok("deploy")
    assert ", step " in place.ok("launch", "--wait", "step:30", timeout_s=20)
    place.ok("stop")
    place.write(command=["python3", "foreign.py", "3", "0.01"])
    assert "got there and ended well" in place.ok("launch", "--wait", "first-step", timeout_s=20)


def test_follow_ends_with_the_run(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "40", "0.05"])
    place.ok("deploy")
    place.ok("launch")
    assert len(place.ok("logs", "-f").splitlines()) == 40


def test_only_what_changed_travels_and_rollback_goes_back(place: Place) -> None:
    for number in range(20):
        (place.payload / f"data{number}").write_bytes(bytes([number]) * 50_000)
    assert "would send 21 of 21 files" in place.ok("deploy", "--dry-run")
    assert "nothing has been deployed" in said(place.orch("launch"))
    place.ok("deploy")
    first = place.status()["release"]
    assert "0 bytes sent" in place.ok("deploy")
    (place.payload / "data7").write_bytes(b"changed")
    assert "sent 1 of 21 files, 7 B" in place.ok("deploy")
    assert place.status()["release"] != first
    place.ok("rollback")
    assert place.status()["release"] == first
    place.ok("rollback")
    assert place.status()["release"] != first


def test_a_commit_can_be_deployed(place: Place) -> None:
    git = ["git", "-C", str(place.payload), "-c", "user.name=t", "-c", "user.email=t@invalid"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    place.ok("deploy")
    first = place.status()["release"]
    (place.payload / "foreign.py").write_text("print('edited, not committed')\n")
    words = place.ok("deploy")
    assert "on main, 1 changed file" in words
    assert place.status()["release"] != first
    place.ok("deploy", "--ref", "HEAD")
    assert place.status()["release"] == first
    done = place.orch("deploy", "--ref", "no-such-branch")
    assert done.returncode == 2 and "no-such-branch" in said(done)


def test_several_targets_at_once_and_one_that_fails_hides_no_other(place: Place) -> None:
    far = place.base if place.lab.inventory else "/root"
    place.write(host={"root": f"{far}/on-the-host", "payload": "foreign"}, command=["python3", "foreign.py", "1", "0"])
    assert place.orch("deploy").returncode == 2
    words = place.ok("deploy", "all")
    assert "ct200: release" in words and "gpu-box: release" in words
    place.lab.stop_container()
    try:
        done = place.orch("status", "all")
    finally:
        place.lab.start_container()
    assert done.returncode == 7
    assert "not running" in done.stderr.decode() and "gpu-box (" in done.stdout.decode()


def test_what_leads_out_of_the_payload_is_refused(place: Place) -> None:
    place.ok("deploy")
    before = place.status()["release"]
    (place.payload / "out").symlink_to("/etc/passwd")
    done = place.orch("deploy")
    assert done.returncode == 13
    assert "out" in said(done)
    assert place.status()["release"] == before


def test_exec_hands_on_code_streams_and_words(place: Place) -> None:
    done = place.orch("exec", "--", "sh", "-c", 'printf "%s|" "$@"; cat; exit 7', "sh", "a b", "$HOME", "", "ü\n*")
    assert done.returncode == 7
    assert done.stdout == "a b|$HOME||ü\n*|".encode()
    data = bytes(range(256)) * 1000
    assert place.orch("exec", "--", "cat", stdin=data).stdout == data


def test_each_command_starts_pct_once(place: Place) -> None:
    place.ok("deploy")
    for words in (
        ["deploy"],
        ["launch", "--wait", "end"],
        ["status"],
        ["logs"],
        ["exec", "--", "true"],
        ["pull"],
        ["stop"],
    ):
        before = place.lab.pct_starts()
        place.ok(*words)
        assert place.lab.pct_starts() - before == 1, words


def test_what_cannot_be_pulled_is_named_and_keeps_nothing_else_back(place: Place) -> None:
    (place.payload / "odd.py").write_text(
        "import os\nfrom pathlib import Path\nrun = Path(os.environ['ORCH_RUN_DIR'])\n"
        "(run / 'checkpoints' / 'step-5').mkdir(parents=True)\n"
        "(run / 'checkpoints' / 'step-5' / 'weights').write_text('w')\n"
        "(run / 'checkpoints' / 'latest').symlink_to(run / 'checkpoints' / 'step-5')\n"
        "(run / 'out').symlink_to('/etc/passwd')\nos.mkfifo(run / 'pipe')\n"
    )
    place.write(command=["python3", "odd.py"])
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    words = place.ok("pull", "--to", "pulled")
    assert "left out, since they cannot be moved: out, pipe" in words
    assert (place.folder / "pulled" / "checkpoints" / "latest" / "weights").read_text() == "w"
    assert not (place.folder / "pulled" / "out").is_symlink()


def test_a_copy_of_a_run_is_not_the_newest_run(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    run = place.status()["run"]["run_id"]
    place.inside("sh", "-c", f"cd {place.base}/runs && cp -a {run} zz-copy && mkdir zzz")
    assert place.status()["run"]["run_id"] == run


def test_refusals_have_their_exit_codes(place: Place) -> None:
    place.ok("deploy")
    for words in (["logs", "nosuch"], ["pull", "nosuch"]):
        done = place.orch(*words)
        assert done.returncode == 2 and "there are no runs yet" in said(done)
    done = place.orch("launch", "--attach")
    assert done.returncode == 2 and place.status()["run"] is None
    place.inside("sh", "-c", f"mv {place.base} {place.base}.aside && touch {place.base}")
    done = place.orch("deploy")
    assert done.returncode == 10 and "Traceback" not in said(done), said(done)


def test_verbose_shows_every_remote_command_line(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "1", "0.01"], session="window", variables={"TOKEN": "se" + "cret"})
    place.ok("deploy")
    words = said(place.orch("launch", "-v", "--wait", "end"))
    for shown in ("pct exec 200", "tmux -V", "new-session"):
        assert shown in words
    assert "secret" not in words


def test_a_stopped_container_is_named_with_its_way_out(place: Place) -> None:
    place.lab.stop_container()
    try:
        done = place.orch("status")
    finally:
        place.lab.start_container()
    assert done.returncode == 7
    assert "not running" in said(done) and "pct start 200" in said(done)


def test_a_missing_container_is_named(place: Place) -> None:
    place.write(target={"id": 999}, command=["true"])
    done = place.orch("status")
    assert done.returncode == 7
    assert "999" in said(done) and "does not exist" in said(done)


def test_an_unknown_host_key_shows_the_trust_line(place: Place) -> None:
    place.write(host={"known_hosts": str(place.folder / "empty_known_hosts")}, command=["true"])
    done = place.orch("status")
    assert done.returncode == 5
    assert "orch trust " in said(done)
    trusted = place.orch("trust", "ct200", "--yes")
    assert trusted.returncode == 0 and "SHA256:" in said(trusted)
    place.ok("status")


def test_without_tmux_the_run_has_no_window_and_says_so(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "3", "0.05"], session="window")
    place.ok("deploy")
    place.lab.hide_program("tmux")
    try:
        assert "tmux is not installed" in place.ok("launch", "--wait", "end")
    finally:
        place.lab.show_program("tmux")


def test_without_python_it_says_so_and_exec_and_logs_still_work(place: Place) -> None:
    place.write(target={"python": "python3"}, command=["sh", "-c", "echo said"])
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    place.lab.hide_program("python3")
    try:
        done = place.orch("status")
        logs = place.orch("logs")
        inside = place.inside("echo", "here")
    finally:
        place.lab.show_program("python3")
    assert done.returncode == 7 and "no Python 3.8 or newer" in said(done)
    assert logs.stdout == b"said\n" and inside == "here\n"

"""What orch does when a standard stream is closed, or leads to a full disk. No lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.output import Output
from orchestrator.cli.streams import write_to
from orchestrator.errors import TransferError

INVENTORY = """
hosts:
  here: {transport: local, root: /tmp/nowhere, payload: mine}
payloads:
  mine: {folder: ., command: [python3, x.py]}
"""


def orch(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Started by a shell, with its redirections."""
    (folder / "inventory.yaml").write_text(INVENTORY)
    environment = {**os.environ, "ORCH_INVENTORY": str(folder / "inventory.yaml")}
    argv = ["sh", "-c", f'exec "$0" -m orchestrator {words}', sys.executable]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)


def test_a_full_disk_under_stdout_is_no_bug_of_orch(tmp_path: Path) -> None:
    done = orch(tmp_path, "hosts >/dev/full")
    assert done.returncode == 13
    assert done.stderr.startswith("orch: the answer could not be written to standard output\n    [Errno 28]")


def test_bytes_that_find_no_room_are_no_bug_either(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as changed:
        changed.setattr(sys, "stdout", full)
        with pytest.raises(TransferError):
            write_to(full.buffer)(b"x" * 100_000)


@pytest.mark.parametrize(("words", "code"), [("hosts", 0), ("hosts nosuch", 2)])
def test_a_full_disk_under_stderr_ends_no_work(tmp_path: Path, words: str, code: int) -> None:
    done = orch(tmp_path, f"{words} 2>/dev/full")
    assert done.returncode == code
    assert ("here" in done.stdout) == (code == 0)


def test_a_reader_of_stderr_that_left_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as left, monkeypatch.context() as changed:
        changed.setattr(sys, "stderr", left)
        Output(verbose=False).note("half of the work is done")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_opened_in_place_of_a_closed_stream_is_handed_on(tmp_path: Path, closed: str) -> None:
    said = tmp_path / "said"
    code = "import os, sys; from orchestrator.cli.main import _open_closed_streams; _open_closed_streams(); "
    code += "open(sys.argv[1], 'w').write(str([os.get_inheritable(number) for number in range(3)]))"
    subprocess.run(["sh", "-c", f'exec "$0" -c "$1" "$2" {closed}', sys.executable, code, str(said)], timeout=60)
    assert said.read_text() == "[True, True, True]"


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_a_closed_stream_ends_no_work(tmp_path: Path, closed: str) -> None:
    done = orch(tmp_path, f"hosts {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "here" in done.stdout and "next:" not in done.stdout, "no note goes to stdout in place of stderr"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stdout_that_is_not_utf_8_gets_question_marks(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    folder = tmp_path / "\u017c\u2581"
    folder.mkdir()
    done = orch(folder, "hosts")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/??/inventory.yaml\n")


def test_a_closed_stdout_ends_no_work(tmp_path: Path) -> None:
    done = orch(tmp_path, "hosts >&-")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr

"""What is said of a tmux session that cannot be adopted; with tmux itself, on servers of the test's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.far.adopt import panes
from orchestrator.agent.far.errors import OpError


def refusal(tmux: list[str], name: str) -> OpError:
    with pytest.raises(OpError) as caught:
        panes(tmux, name)
    return caught.value


def test_a_folder_that_tmux_refuses_is_not_called_a_missing_session(tmp_path: Path) -> None:
    folder = tmp_path / f"tmux-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    error = refusal(["env", f"TMUX_TMPDIR={tmp_path}", "tmux"], "dflash")
    assert "cannot be asked" in str(error) and "there is no" not in str(error)


def test_the_sessions_that_there_are_are_named(tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "s"), "-f", "/dev/null"]
    assert "sessions: none" in refusal(tmux, "dflash").evidence
    subprocess.run([*tmux, "new-session", "-d", "-s", "other", "sleep", "60"], check=True)
    try:
        error = refusal(tmux, "dflash")
        assert "there is no tmux session dflash" in str(error) and "sessions: other" in error.evidence
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)

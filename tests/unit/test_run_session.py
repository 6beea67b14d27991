"""What tmux says, and what it is told: pure parts."""

import tempfile

import pytest

from orchestrator.agent.far import session


@pytest.mark.parametrize(
    ("code", "said", "present"),
    [
        (1, "no server running on /orch/tmux.sock", False),
        (1, "error connecting to /orch/tmux.sock (No such file or directory)", False),
        (1, "no sessions", False),
        (1, "error connecting to /orch/tmux.sock (Permission denied)", None),
        (1, "protocol version mismatch (client 8, server 7)", None),
        (0, "train-2 0\nother 1", False),
        (0, "train-2 0\ntrain 2", True),
        (0, "", False),
    ],
)
def test_its_words_decide(code, said, present):
    assert session.parse_sessions(code, said, "train").present is present


def test_how_many_look_at_it():
    assert session.parse_sessions(0, "my train 2\ntrain 3", "my train").attached == 2


def test_names_as_tmux_will_call_them():
    assert session.session_name("a.b:c") == "a_b_c"


def test_no_word_of_the_command_ends_it():
    argv = session.new_session_argv("/s", "n", "/", ["python", "a;", ";", "x;y"])
    assert argv[argv.index("--") + 1 :] == ["python", "a\\;", "\\;", "x;y"]


def test_a_private_folder_is_demanded_for_a_short_socket(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    base = "/" + "x" * 120
    path = session.prepare_socket_folder(base)
    assert len(path) <= session.MAX_SOCKET_BYTES or len(str(tmp_path)) > 60
    folder = next(tmp_path.iterdir())
    folder.chmod(0o755)
    with pytest.raises(session.TmuxError):
        session.prepare_socket_folder(base)
    folder.rmdir()
    folder.symlink_to("/tmp")
    with pytest.raises(session.TmuxError):
        session.prepare_socket_folder(base)

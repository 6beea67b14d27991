"""The tmux session in which the wrapper of a run shows its log: a window for people, never the record.

Rule: everything goes to our own server on our own socket; a session is named exactly (`=name`), and one is
removed only when nothing lives in it. tmux's exit code says little: its words do.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import time
from typing import Any, Dict, List, NamedTuple

SOCKET = "tmux.sock"
MAX_SOCKET_BYTES = 107
"""sun_path, without its final NUL."""
TMUX_DEADLINE_S = 10.0
WIDTH, HEIGHT, HISTORY_LINES = 250, 50, 50_000

LAST_LINE_S = 3.0
"""An ended run's wrapper may still be writing its last line to the pane."""

NOBODY = ("no server running on", "No such file or directory", "can't find session", "no sessions", "server exited")
"""What tmux says when the session, the server or its socket is not there."""


class TmuxError(Exception):
    """tmux is missing, too slow, or said no; the text is for people."""


class SessionFacts(NamedTuple):
    present: bool | None
    """None: it could not be found out."""
    attached: int | None
    note: str | None


def session_name(wanted: str) -> str:
    """As tmux will call it."""
    return wanted.replace(".", "_").replace(":", "_")


def socket_path(base: str) -> str:
    """<base>/tmux.sock, or a short path under /tmp where that would be too long for a socket."""
    path = os.path.join(base, SOCKET)
    if len(os.fsencode(path)) <= MAX_SOCKET_BYTES:
        return path
    import hashlib  # these two are rarely wanted, and every status passes through here
    import tempfile

    digest = hashlib.sha256(os.fsencode(os.path.realpath(base))).hexdigest()[:12]
    return os.path.join(tempfile.gettempdir(), "orch-%d-%s" % (os.getuid(), digest), SOCKET)


def prepare_socket_folder(base: str) -> str:
    """The socket's path, its folder there. Raises TmuxError when the folder is not ours alone."""
    path = socket_path(base)
    folder = os.path.dirname(path)
    if folder != base.rstrip("/"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise TmuxError("%s is not a private folder of ours" % folder)
    return path


def tmux_argv(socket: str, *words: str) -> List[str]:
    return ["tmux", "-S", socket, "-f", "/dev/null", "-u", *words]


def attach_argv(base: str, name: str) -> List[str]:
    return tmux_argv(socket_path(base), "attach-session", "-t", "=" + name)


def new_session_argv(socket: str, name: str, folder: str, command: List[str], *, replace: bool = False) -> List[str]:
    """The options are set before the session is made: history is fixed when a pane is born, and a command
    that ends at once would otherwise take pane and server with it. replace: one of that name is there, and goes in the
    same breath: a server whose last session is gone ends, and takes whoever asks it meanwhile with it."""
    # fmt: off
    return tmux_argv(
        socket, "start-server",
        *((";", "kill-session", "-t", "=" + name) if replace else ()),
        ";", "set-option", "-g", "history-limit", str(HISTORY_LINES),
        ";", "set-option", "-g", "remain-on-exit", "on",
        ";", "new-session", "-d", "-s", name, "-x", str(WIDTH), "-y", str(HEIGHT), "-c", folder, "--",
        # A word that ends with a semicolon would end tmux's command.
        *(word[:-1] + "\\;" if word.endswith(";") else word for word in command),
    )
    # fmt: on


def start_session(base: str, name: str, folder: str, command: List[str]) -> None:
    """Raises TmuxError. The caller knows that no run is live."""
    socket = prepare_socket_folder(base)
    replace = bool(look(base, name).present) and not put_away(socket, name)
    code, said = run_tmux(new_session_argv(socket, name, folder, command, replace=replace))
    if code:
        raise TmuxError(said or "tmux ended with exit code %d" % code)


def put_away(socket: str, name: str) -> bool:
    """Frees the name where somebody works in the session: it is renamed. False: everything in it is dead, and it may
    be replaced. Raises TmuxError."""
    until = time.monotonic() + LAST_LINE_S
    while True:
        code, said = run_tmux(tmux_argv(socket, "list-panes", "-s", "-t", "=%s:" % name, "-F", "#{pane_dead}"))
        if code == 0 and set(said.split()) == {"1"}:
            return False
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    for number in range(1, 100):
        code, said = run_tmux(tmux_argv(socket, "rename-session", "-t", "=" + name, "%s-old%d" % (name, number)))
        if code == 0 or any(text in said for text in NOBODY):
            return True
    raise TmuxError("session %s is in use and cannot be renamed: %s" % (name, said))


def look(base: str, name: str) -> SessionFacts:
    """Is the session there, and how many look at it?"""
    argv = tmux_argv(socket_path(base), "list-sessions", "-F", "#{session_name} #{session_attached}")
    try:
        code, said = run_tmux(argv)
    except TmuxError as error:
        return SessionFacts(None, None, str(error))
    return parse_sessions(code, said, name)


def parse_sessions(code: int, said: str, name: str) -> SessionFacts:
    if code:
        if any(text in said for text in NOBODY):
            return SessionFacts(False, None, None)
        return SessionFacts(None, None, said or "tmux ended with exit code %d" % code)
    for line in said.splitlines():
        found, _, attached = line.rpartition(" ")
        if found == name:
            return SessionFacts(True, int(attached) if attached.isdigit() else None, None)
    return SessionFacts(False, None, None)


def capture(base: str, name: str) -> str:
    """What the session's screen shows, and the lines that scrolled off when tmux said that the pane is dead. For
    evidence only."""
    with contextlib.suppress(TmuxError):
        code, said = run_tmux(
            tmux_argv(socket_path(base), "capture-pane", "-p", "-J", "-S", "-100", "-t", "=%s:" % name)
        )
        return said if code == 0 else ""
    return ""


def run_tmux(argv: List[str]) -> tuple[int, str]:
    """(exit code, what it said on either stream). Raises TmuxError."""
    environment: Dict[str, Any] = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE", "TMUX_TMPDIR")}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TMUX_DEADLINE_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TmuxError("tmux did not answer within %g s" % TMUX_DEADLINE_S) from None
    except FileNotFoundError:
        raise TmuxError("tmux is not installed") from None
    except OSError as error:
        raise TmuxError("tmux could not be started: %s" % error) from error
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()

"""The folder of control sockets and generated settings, private to one user.

Rule: used only when it is a real folder, ours, and closed to everybody else; otherwise refused, never repaired.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.inventory.model import Host
from orchestrator.transport.ssh_settings import settings_text

# A socket's path holds 107 bytes: "/", 8 of ours, 40 (%C), "." and 16 that ssh appends while it is being made.
LONGEST_FOLDER = 107 - 66


def runtime_folder() -> Path:
    """Made when missing. Raises OrchError when somebody else could reach into it."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(given) / "orch"
    fits = re.fullmatch(r"/[\w./+-]+", given, re.ASCII) and len(str(folder)) <= LONGEST_FOLDER
    if not fits or not os.access(given, os.W_OK):  # other characters would mean something in ssh's settings
        folder = Path("/tmp") / f"orch-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise OrchError(
            f"{folder}: cannot be made or read; it would hold your SSH control sockets",
            evidence=str(error),
            way_out="set XDG_RUNTIME_DIR to a folder that only you can enter",
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise OrchError(
            f"{folder} is not a folder that only you can enter; it would hold your SSH control sockets",
            evidence=f"mode {stat.filemode(facts.st_mode)}, owner uid {facts.st_uid}",
            way_out=f"look at it, then: rm -r {folder}",
        )
    return folder


def keep_text(text: str, *, suffix: str) -> Path:
    """The path of a file in the runtime folder with exactly this text; the same text gives the same path."""
    folder = runtime_folder()
    path = folder / (hashlib.sha256(text.encode()).hexdigest()[:16] + suffix)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return path
    import tempfile  # with every compressor that there is; the file is nearly always there already

    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(temporary).replace(path)
    return path


def keep_settings(host: Host) -> Path:
    """The generated ssh_config of a host, as a file. Raises OrchError."""
    return keep_text(settings_text(host, home=Path.home(), network=_network()), suffix=".conf")


def _network() -> str:
    try:
        return str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return "the only one"

"""What this machine still has of the code of two runs: files of the payload's folder, and git's commits. Reads only."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator.agent.git import GIT_LIMIT_S

MAX_BYTES = 256 * 1024
MAX_COMMITS = 50


def local_contents(folder: Path, wanted: Mapping[str, str], commits: Iterable[str]) -> dict[str, bytes]:
    """sha256 -> content, of those that are there. wanted: sha256 -> path below the folder."""
    found: dict[str, bytes] = {}
    for sha256, path in wanted.items():
        if path.startswith("/") or ".." in path.split("/"):
            continue
        for data in (_file(folder / path), *(_at_commit(folder, commit, path) for commit in commits)):
            if data is not None and hashlib.sha256(data).hexdigest() == sha256:
                found[sha256] = data
                break
    return found


def commits_between(folder: Path, a: str, b: str) -> tuple[str, ...] | None:
    """`+ 0123456789 subject` of those only B has, `- ...` of those only A has, newest first. None: git here does not
    know both."""
    words = ["log", "--left-right", "--cherry-mark", f"--max-count={MAX_COMMITS}", "--format=%m %h %s", f"{a}...{b}"]
    said = _git(folder, [*words, "--"])
    if said is None:
        return None
    signs = {">": "+", "<": "-", "=": "="}
    return tuple(signs.get(line[:1], line[:1]) + line[1:] for line in said.decode("utf-8", "replace").splitlines())


def _file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_BYTES else None
    except OSError:
        return None


def _at_commit(folder: Path, commit: str, path: str) -> bytes | None:
    data = _git(folder, ["show", f"{commit}:./{path}"])
    return data if data is not None and len(data) <= MAX_BYTES else None


def _git(folder: Path, words: Sequence[str]) -> bytes | None:
    argv = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

"""What git says about a folder, and the content of a commit. Through the git program; reads only.

Rule: no git, or no repository, is None and never an error; a revision that was asked for and is not there is one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import TransferError, UsageError

GIT_LIMIT_S = 60.0


@dataclass(frozen=True)
class GitState:
    commit: str
    branch: str | None
    """None: a detached head."""
    dirty_files: tuple[str, ...]
    """Of this folder, changed or unknown to git, as git names them."""


@dataclass(frozen=True)
class GitFile:
    path: str
    """Below the folder; may hold what is not UTF-8 (surrogates)."""
    mode: int
    """As git has it: 0o100644, 0o100755, 0o120000 (link), 0o160000 (submodule)."""
    object_id: str


def describe_git(folder: Path) -> GitState | None:
    commit = _try(folder, "rev-parse", "--verify", "HEAD")
    status = _try(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    if commit is None or status is None:
        return None
    branch = _try(folder, "symbolic-ref", "-q", "--short", "HEAD")
    dirty = tuple(row[3:] for row in status.split("\0") if row)
    return GitState(commit.strip(), branch.strip() if branch else None, dirty)


def resolve_revision(folder: Path, revision: str) -> str:
    """The commit. Raises UsageError."""
    commit = _try(folder, "rev-parse", "--verify", "--end-of-options", revision + "^{commit}")
    if commit is None:
        raise UsageError(f"{folder}: git knows no revision {revision!r} here", way_out=f"git -C {folder} log --oneline")
    return commit.strip().splitlines()[-1]


def list_commit(folder: Path, commit: str) -> list[GitFile]:
    """Files of the commit below the folder. Raises TransferError."""
    listing = _try(folder, "ls-tree", "-r", "-z", commit)
    if listing is None:
        raise _unreadable(folder, f"git cannot list {commit}")
    files = []
    for row in listing.split("\0"):
        if row:
            facts, path = row.split("\t", 1)
            mode, _, object_id = facts.split(" ")
            files.append(GitFile(path, int(mode, 8), object_id))
    return files


def read_objects(folder: Path, object_ids: Sequence[str], piece_bytes: int) -> Iterator[Iterator[bytes]]:
    """Each object's content in pieces, which must be taken whole before the next one. Raises TransferError."""
    argv = ["git", "-C", str(folder), "cat-file", "--batch"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        stdout = process.stdout
        try:
            for object_id in object_ids:
                # One at a time: asking for all at once could fill both pipes.
                process.stdin.write(object_id.encode("ascii") + b"\n")
                process.stdin.flush()
                answer = stdout.readline().split()
                if len(answer) != 3 or answer[1] != b"blob":
                    raise _unreadable(folder, f"git cannot read the object {object_id}")

                def pieces(left: int) -> Iterator[bytes]:
                    while left:
                        data = stdout.read(min(left, piece_bytes))
                        if not data:
                            raise _unreadable(folder, "git ended too early")
                        left -= len(data)
                        yield data
                    stdout.read(1)

                yield pieces(int(answer[2]))
        except OSError as error:
            raise _unreadable(folder, "git ended too early", str(error)) from error
        finally:
            process.kill()


def _try(folder: Path, *words: str) -> str | None:
    argv = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None


def _unreadable(folder: Path, what: str, evidence: str = "") -> TransferError:
    return TransferError(f"{folder}: {what}", evidence=evidence, way_out=f"git -C {folder} fsck")

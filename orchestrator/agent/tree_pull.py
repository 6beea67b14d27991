"""A folder over there -> a folder here, the same way backwards.

Rule: everything is received and verified in `<folder>.incoming` first; then each file takes its place by rename.
Equal files are not sent again, what arrived before a cut is kept, local files that are not over there stay.
A file that is rewritten while it travels is asked for again, a few times.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.far.blobs import BlobWriter, Syncer, unpack_frame
from orchestrator.agent.far.manifest import DIR, FILE, Entry, ManifestError, json_pack, unpack
from orchestrator.agent.far.scan import hash_file
from orchestrator.agent.tree_progress import OnProgress, ProgressCounter
from orchestrator.agent.tree_push import transfer_error
from orchestrator.errors import TransferError

ROUNDS = 4
SCAN_LIMIT_S = 3600.0


@dataclass(frozen=True)
class PullResult:
    files: int
    """In the remote folder."""
    files_received: int
    bytes_received: int
    """Of file contents, before compression."""
    left_out: tuple[str, ...]
    """What cannot be moved: FIFOs, sockets, links that lead out, names with control characters."""


async def pull_tree(
    session: AgentSession,
    remote_folder: str,
    local_folder: Path,
    *,
    exclude: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> PullResult:
    """Raises TransferError, OutcomeUnknownError (pull again: what arrived is kept)."""
    incoming = local_folder.with_name(local_folder.name + ".incoming")
    pull = _Pull(session, remote_folder, local_folder, incoming, on_progress)
    try:
        for _ in range(ROUNDS):
            entries = await pull.scan(exclude)
            if entries is not None and await pull.fetch(entries):
                await asyncio.to_thread(pull.merge, entries)
                files = sum(entry.kind == FILE for entry in entries)
                return PullResult(files, pull.files_received, pull.bytes_received, pull.left_out)
    except AgentOpError as error:
        raise transfer_error(session.label, error) from error
    except ManifestError as error:
        raise TransferError(f"{session.label}: {remote_folder} cannot be pulled", evidence=str(error)) from error
    except OSError as error:
        raise TransferError(
            f"{local_folder} could not be written",
            evidence=str(error),
            way_out="free some space, or see who may write there; then the same command again",
        ) from error
    raise TransferError(
        f"{session.label}: {remote_folder} kept changing while it was read",
        evidence="\n".join(pull.changing),
        way_out="the same command again, once nothing writes there",
    )


class _Pull:
    def __init__(
        self, session: AgentSession, remote: str, local: Path, incoming: Path, on_progress: OnProgress | None
    ) -> None:
        self.files_received = 0
        self.bytes_received = 0
        self.left_out: tuple[str, ...] = ()
        self.changing: list[str] = []
        """What changed while it was read, in the last round."""
        self._placed: set[str] = set()
        self._session = session
        self._remote = remote
        self._local = local
        self._incoming = incoming
        self._on_progress = on_progress

    async def scan(self, exclude: Sequence[str]) -> tuple[Entry, ...] | None:
        """None: something changed while it was read."""
        try:
            reply = await self._session.request(
                "tree_scan", timeout_s=SCAN_LIMIT_S, path=self._remote, exclude=list(exclude)
            )
        except AgentOpError as error:
            self._forgive(error)
            return None
        self.left_out = tuple(reply.header["odd"])
        return unpack(reply.body)

    async def fetch(self, entries: Sequence[Entry]) -> bool:
        """True: every content is here, in its place or in incoming."""
        missing = await asyncio.to_thread(self._missing, entries)
        counter = ProgressCounter([entry.size for entry in missing], self._on_progress)
        if not missing:
            return True
        wanted = [(entry.path, entry.size) for entry in missing]
        syncer = Syncer()
        writer = BlobWriter(
            str(self._incoming), [(entry.sha256, entry.size) for entry in missing], syncer, tolerant=True
        )
        try:
            async with self._session.exchange("tree_send", body=json_pack(wanted), path=self._remote) as exchange:
                await asyncio.to_thread(writer.feed, b"")
                while not (reply := await exchange.receive()).final:
                    data = unpack_frame(reply.header, reply.body)
                    await asyncio.to_thread(writer.feed, data)
                    self.bytes_received += len(data)
                    counter.add(len(data))
        except AgentOpError as error:
            self._forgive(error)
            return False
        finally:
            with contextlib.suppress(OSError):
                writer.abandon()
        await asyncio.to_thread(syncer.finish)
        self.changing = [entry.path for entry in missing if entry.sha256 in writer.wrong]
        self.files_received += len(missing) - len(self.changing)
        return not self.changing

    def merge(self, entries: Sequence[Entry]) -> None:
        """Raises OSError, ManifestError."""
        self._local.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            path = self._local / entry.path
            if path.is_dir() and not path.is_symlink():
                if entry.kind != DIR:
                    raise ManifestError(entry.path, "here it is a folder, over there it is not")
            elif entry.kind == DIR:
                if path.is_symlink() or path.exists():
                    raise ManifestError(entry.path, "over there it is a folder, here it is not")
                path.mkdir()
            elif entry.kind == FILE:
                self._place(entry, path)
            else:
                staging = self._staging()
                staging.symlink_to(entry.target)
                staging.replace(path)
        if self._incoming.exists():
            shutil.rmtree(self._incoming)

    def _missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """One entry for each content that is neither here in its place nor in incoming."""
        missing: dict[str, Entry] = {}
        for entry in entries:
            if entry.kind == FILE and entry.sha256 not in missing and not _holds(self._local / entry.path, entry):
                self._incoming.mkdir(parents=True, exist_ok=True)
                if not _holds(self._incoming / entry.sha256, entry):
                    missing[entry.sha256] = entry
        return list(missing.values())

    def _place(self, entry: Entry, path: Path) -> None:
        if not _holds(path, entry):
            staging = self._staging()
            blob = self._incoming / entry.sha256
            try:
                if entry.sha256 in self._placed:
                    raise FileExistsError("the same content twice must not be the same file")
                staging.hardlink_to(blob)  # so a large file never needs its space twice
            except OSError:
                shutil.copyfile(blob, staging)
            self._placed.add(entry.sha256)
            staging.chmod(entry.mode)
            staging.replace(path)
        elif path.stat().st_mode & 0o777 != entry.mode:
            path.chmod(entry.mode)

    def _staging(self) -> Path:
        self._incoming.mkdir(parents=True, exist_ok=True)
        staging = self._incoming / "placing"
        staging.unlink(missing_ok=True)
        return staging

    def _forgive(self, error: AgentOpError) -> None:
        """What changed may settle; anything else is raised."""
        if error.kind != "changed":
            raise error
        self.changing = [error.what]


def _holds(path: Path, entry: Entry) -> bool:
    """Is it a plain file with this content? Through no link."""
    try:
        return path.lstat().st_size == entry.size and hash_file(str(path))[0] == entry.sha256
    except (OSError, ManifestError):
        return False

"""Publications in an object store that speaks S3, through boto3.

    <prefix>/<tree hash>/...     the files; each object says its sha256 in its metadata
    <prefix>/<tree hash>.json    the record, written when all of them are there
    <prefix>/current.json        which one is current, and which was before: one small object, written last

Rule: credentials, endpoint and region come from where boto3 looks for them (environment, AWS configuration), never from
our command line. An object is written whole or not at all, so a cut leaves files without a record, which nobody reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.agent.tree import OnProgress, TreeSource
from orchestrator.agent.tree_progress import ProgressCounter
from orchestrator.errors import NotAsWantedError, OrchError, OutcomeUnknownError, TransferError, UsageError
from orchestrator.ledger.publications import Shelved, going, shelved
from orchestrator.operations.object_store_errors import is_missing, told
from orchestrator.operations.where import Where, published_meanwhile

CONNECT_LIMIT_S = 10.0
READ_LIMIT_S = 30.0
"""Silence for this long ends a request."""
ATTEMPTS = 3
PART_BYTES = 32 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
ORPHAN_AGE_S = 2 * 86400.0
"""Files without a record that are older belong to no upload that is under way."""
SCHEMA = "orch.publication/1"
CURRENT = "current.json"
UNREADABLE = "unreadable"
"""In place of a tree hash."""

Answer = TypeVar("Answer")


class ObjectStore:
    def __init__(self, where: Where) -> None:
        try:
            import boto3  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise UsageError(
                "publishing to an object store needs boto3", way_out="pip install 'orch-train[s3]'"
            ) from error
        self._where = where
        self._made: Any = None
        self._given_up = threading.Event()

    async def look(self) -> Shelved:
        return await self._do(self._look)

    async def put(
        self, folder: Path, source: TreeSource, provenance: Mapping[str, object], on_progress: OnProgress | None
    ) -> int:
        return await self._do(self._put, folder, source, provenance, on_progress)

    async def switch(self, tree_hash: str, expected: Sequence[str | None] | None = None) -> str | None:
        return await self._do(self._switch, tree_hash, expected)

    async def prune(self, keep: int) -> tuple[str, ...]:
        return await self._do(self._prune, keep)

    async def _do(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """In a thread; one that is interrupted ends at its next piece."""
        try:
            return await asyncio.to_thread(work, *arguments)
        except asyncio.CancelledError:
            self._given_up.set()
            raise
        except OrchError:
            raise
        except Exception as error:
            raise told(error, self._where.text) from error

    @property
    def _client(self) -> Any:
        if self._made is None:
            import boto3
            from botocore.config import Config

            self._made = boto3.session.Session(profile_name=self._where.profile).client(
                "s3",
                config=Config(
                    connect_timeout=CONNECT_LIMIT_S,
                    read_timeout=READ_LIMIT_S,
                    retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                    # Stores that are not Amazon's know no trailing checksums; we read everything back ourselves.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        return self._made

    def _key(self, name: str) -> str:
        return f"{self._where.prefix}/{name}" if self._where.prefix else name

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._where.bucket, "Key": self._key(name)}

    # What there is.

    def _look(self) -> Shelved:
        pointer = self._current()
        records = [
            record
            for name in self._names(delimiter="/")
            if (tree := name.removesuffix(".json")) != name and _is_hash(tree) and (record := self._json(name))
        ]
        return shelved(self._where.text, records, current=pointer.get("tree_hash"), previous=pointer.get("previous"))

    def _current(self) -> Mapping[str, object]:
        """What is there and cannot be read is not taken for an empty place: nobody knows what servers load from it."""
        record = self._json(CURRENT)
        if isinstance(record, dict) and isinstance(record.get("tree_hash"), str):
            return record
        return {"tree_hash": UNREADABLE} if record is not None or self._exists(CURRENT) else {}

    def _exists(self, name: str) -> bool:
        try:
            self._client.head_object(**self._at(name))
        except Exception as error:
            if is_missing(error):
                return False
            raise
        return True

    def _json(self, name: str) -> dict[str, Any] | None:
        """None: it is not there, or no record."""
        try:
            with closing(self._client.get_object(**self._at(name))["Body"]) as stream:
                record = json.loads(stream.read())
        except ValueError:
            return None
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return record if isinstance(record, dict) else None

    def _names(self, below: str = "", *, delimiter: str = "") -> Iterator[str]:
        for one in self._objects(below, delimiter=delimiter):
            yield one["Key"][len(self._key("")) :]

    def _objects(self, below: str = "", *, delimiter: str = "") -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._where.bucket, Prefix=self._key(below), **({"Delimiter": delimiter} if delimiter else {})
        )
        for page in pages:
            yield from page.get("Contents", [])

    # Bringing one there.

    def _put(
        self, folder: Path, source: TreeSource, provenance: Mapping[str, object], on_progress: OnProgress | None
    ) -> int:
        from boto3.s3.transfer import TransferConfig

        name = source.tree_hash
        self._abort_uploads(name + "/")
        files = [entry for entry in source.entries if entry.kind == "file"]
        missing = [entry for entry in files if not self._holds(f"{name}/{entry.path}", entry.sha256, entry.size)]
        counter = ProgressCounter([entry.size for entry in missing], on_progress)
        settings = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=4)
        for entry in missing:
            with (folder / entry.path).open("rb") as stream:
                self._client.upload_fileobj(
                    _Stoppable(stream, self._given_up),
                    **self._at(f"{name}/{entry.path}"),
                    ExtraArgs={"Metadata": {"sha256": entry.sha256}},
                    Config=settings,
                    Callback=counter.add,
                )
        record = {
            "schema": SCHEMA,
            "tree_hash": name,
            "pushed_at": time.time(),
            "provenance": dict(provenance),
            "files": len(files),
            "bytes": sum(entry.size for entry in files),
            "entries": [[entry.path, entry.sha256, entry.size] for entry in files],
        }
        self._write(f"{name}.json", record)
        return sum(entry.size for entry in missing)

    def _holds(self, name: str, sha256: str, size: int) -> bool:
        """As the object says of itself; its bytes are read before the switch."""
        try:
            facts = self._client.head_object(**self._at(name))
        except Exception as error:
            if is_missing(error):
                return False
            raise
        return bool(facts["ContentLength"] == size and facts.get("Metadata", {}).get("sha256") == sha256)

    def _write(self, name: str, record: Mapping[str, object]) -> None:
        body = json.dumps(record, sort_keys=True).encode("ascii")
        self._client.put_object(**self._at(name), Body=body, ContentType="application/json")

    # Making it current.

    def _switch(self, tree_hash: str, expected: Sequence[str | None] | None) -> str | None:
        record = self._json(f"{tree_hash}.json")
        if record is None:
            raise TransferError(f"{self._where.text}: there is no whole publication {tree_hash}")
        wrong = [
            path for path, sha256, size in record["entries"] if not self._is_there(f"{tree_hash}/{path}", sha256, size)
        ]
        pointer = self._current()
        before = pointer.get("tree_hash")
        if expected is not None and before not in expected:
            raise published_meanwhile(self._where, str(before) if before else None)
        if wrong:
            if tree_hash not in (before, pointer.get("previous")):
                for name in (f"{tree_hash}.json", *(f"{tree_hash}/{path}" for path in wrong)):
                    self._client.delete_object(**self._at(name))
            raise NotAsWantedError(
                f"{self._where.text}: {len(wrong)} files are not what was sent; {CURRENT} is as it was",
                evidence="\n".join(wrong[:10]),
                way_out="orch publish again: what is wrong is sent anew",
            )
        if before != tree_hash:
            said = record.get("provenance") or {}
            about = {name: said.get(name) for name in ("kind", "run_id", "step")}
            fresh = {
                "schema": SCHEMA,
                "tree_hash": tree_hash,
                "previous": None if before == UNREADABLE else before,
                "switched_at": time.time(),
                **about,
            }
            self._write_current(fresh)
        return before if isinstance(before, str) else None

    def _write_current(self, fresh: Mapping[str, object]) -> None:
        try:
            self._write(CURRENT, fresh)
        except Exception as error:
            failure = told(error, self._where.text)
            try:
                now = self._current().get("tree_hash")
            except Exception:
                raise OutcomeUnknownError(
                    f"{self._where.text}: the answer to the switch was lost; {CURRENT} is the old one or the new one",
                    evidence=f"{failure.what}\n{failure.evidence}".rstrip(),
                    way_out="orch publish --to WHERE --list",
                ) from error
            if now != fresh["tree_hash"]:
                raise failure from error

    def _is_there(self, name: str, sha256: str, size: int) -> bool:
        """Reads it all."""
        from botocore.exceptions import HTTPClientError, ResponseStreamingError

        for attempt in range(ATTEMPTS):
            digest, length = hashlib.sha256(), 0
            try:
                with closing(self._client.get_object(**self._at(name))["Body"]) as stream:
                    for piece in stream.iter_chunks(PIECE_BYTES):
                        self._check()
                        digest.update(piece)
                        length += len(piece)
            except (HTTPClientError, ResponseStreamingError):
                if attempt + 1 == ATTEMPTS:
                    raise
                continue
            except Exception as error:
                if is_missing(error):
                    return False
                raise
            return length == size and digest.hexdigest() == sha256
        return False

    # What may go.

    def _prune(self, keep: int) -> tuple[str, ...]:
        there = self._look()
        removed = going(there, keep)
        for tree_hash in removed:
            self._client.delete_object(**self._at(f"{tree_hash}.json"))  # first: what is half gone is listed no more
        stays = {one.tree_hash for one in there.publications} - set(removed)
        stays |= {name for name in (there.current, there.previous) if name}
        now = time.time()
        for one in list(self._objects()):
            name = one["Key"][len(self._key("")) :]
            tree_hash, slash, _ = name.partition("/")
            if not slash or not _is_hash(tree_hash) or tree_hash in stays:
                continue
            if tree_hash in removed or now - one["LastModified"].timestamp() > ORPHAN_AGE_S:
                self._client.delete_object(**self._at(name))
        return removed

    def _abort_uploads(self, below: str) -> None:
        """Parts that a killed upload left, which cost and which no listing shows."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._where.bucket, Prefix=self._key(below)
        )
        for page in pages:
            for one in page.get("Uploads", []):
                self._client.abort_multipart_upload(Bucket=self._where.bucket, Key=one["Key"], UploadId=one["UploadId"])

    def _check(self) -> None:
        if self._given_up.is_set():
            raise OrchError("interrupted")


class _Stoppable:
    """A file that refuses to be read on once nobody wants it."""

    def __init__(self, stream: Any, given_up: threading.Event) -> None:
        self._stream = stream
        self._given_up = given_up

    def read(self, count: int = -1) -> bytes:
        if self._given_up.is_set():
            raise OrchError("interrupted")
        data: bytes = self._stream.read(count)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        """Whoever opened it closes it."""


def _is_hash(name: str) -> bool:
    return len(name) == 64 and all(letter in "0123456789abcdef" for letter in name)

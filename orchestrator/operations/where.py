"""The words of `--to`: a folder here, a folder on a target, an object store.

Rule: nothing is looked at; what the words could mean two ways is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.errors import NotAsWantedError, UsageError
from orchestrator.inventory.model import Inventory, Target

STORE_SCHEME = "s3://"
JUDGE_AGAIN = "orch publish --to WHERE --list\norch play FILE --from gate     judges against the new one"


@dataclass(frozen=True)
class Where:
    """One place to publish to. `text` is what messages call it."""

    text: str
    folder: str = ""
    """Absolute. Empty: an object store."""
    target: Target | None = None
    """Whose folder it is. None: this machine's."""
    bucket: str = ""
    prefix: str = ""
    """Without slashes at its ends; may be empty."""
    profile: str | None = None
    """Of the AWS configuration, for an object store."""


def parse_where(text: str, inventory: Inventory, *, profile: str | None = None) -> Where:
    """`s3://bucket/prefix`, `TARGET:/folder`, or a folder here. Raises UsageError."""
    if text.startswith(STORE_SCHEME):
        bucket, _, prefix = text.removeprefix(STORE_SCHEME).partition("/")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
            raise UsageError(f"{text}: {bucket!r} cannot be the name of a bucket", way_out="--to s3://bucket/prefix")
        parts = [part for part in prefix.split("/") if part]
        if any(part in (".", "..") for part in parts):
            raise UsageError(f"{text}: a prefix has no . or .. in it", way_out="--to s3://bucket/prefix")
        return Where(text.rstrip("/"), bucket=bucket, prefix="/".join(parts), profile=profile)
    if profile is not None:
        raise UsageError("--profile goes with an object store", way_out="--to s3://bucket/prefix")
    if re.match(r"[a-z0-9+]+://", text):
        raise UsageError(f"{text}: only s3:// is known", way_out="--to s3://bucket/prefix, TARGET:/folder or a folder")
    name, colon, folder = text.partition(":")
    if colon and "/" not in name:
        if name not in inventory.targets:
            raise UsageError(
                f"{text}: the inventory has no target {name}",
                evidence="it has: " + ", ".join(inventory.targets),
                way_out="for a folder of this machine with a colon in its name: ./" + text,
            )
        if not folder.startswith("/") or ".." in PurePosixPath(folder).parts:
            raise UsageError(f"{text}: the folder on a target is an absolute path", way_out=f"--to {name}:/srv/drafter")
        folder = str(PurePosixPath(folder))
        return Where(f"{name}:{folder}", folder=folder, target=inventory.targets[name])
    here = os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - resolves no link: `current` may be one above it
    if here == "/" or not text:
        raise UsageError("publishing needs a folder of its own", way_out="--to /srv/drafter")
    return Where(here, folder=here)


def published_meanwhile(where: Where, current: str | None) -> NotAsWantedError:
    return NotAsWantedError(
        f"{where.text}: another one was published meanwhile; it stays",
        evidence=f"current is {current or 'nothing'}",
        way_out=JUDGE_AGAIN,
    )

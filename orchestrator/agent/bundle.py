"""The agent as one compressed blob, and the few lines that start it on a bare interpreter.

Rule: nothing is written over there; the same sources give the same bytes and the same hash, wherever they are built.
The sources travel, not code objects: those differ between Python versions.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from orchestrator.agent.far.sources import hash_of, sources

NO_PYTHON_EXIT = 96
"""The start script found no interpreter that would do."""

_BOOT_SOURCE = """\
import sys
if sys.version_info<(3,8):
 sys.stderr.write('Python 3.8 or newer is needed, this is '+sys.version.split()[0]+chr(10));sys.exit(4)
import os,zlib
def r(n):
 b=b''
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:sys.exit(3)
  b+=c
 return b
n=r(12)
if n[:4]!=b'orch':sys.exit(3)
s,_,p=zlib.decompress(r(int(n[4:]))).partition(bytes(1))
exec(compile(s,'<orch>/orch_agent/loader.py','exec'),{'PACKED':p,'__name__':'orch_agent_loader'})
"""
BOOT = f"exec({_BOOT_SOURCE!r})"
"""For `python -c`, in one line, as logs and process lists like it. It must parse under Python 2, to be refused there
in words, and read not one byte too many."""

START = (
    'boot=$1; shift; for python in "$@"; do'
    ' command -v "$python" >/dev/null 2>&1 || continue;'
    ' "$python" -I -S -c "$boot"; code=$?;'
    " case $code in 0|3|129|1[3-9]?|2??) exit $code;; esac;"
    ' echo "orch: $python will not do (exit $code)" >&2;'
    f" done; exit {NO_PYTHON_EXIT}"
)
"""Codes 0 and 3 are the agent's own, those above 128 mean that it was killed: the stream has been read from,
and no other interpreter may be tried on what is left of it."""


@dataclass(frozen=True)
class Bundle:
    agent_hash: str
    preamble: bytes
    """What the bootstrap reads from stdin before the first frame."""


def start_argv(pythons: Sequence[str]) -> list[str]:
    """Runs the first interpreter of `pythons` that exists and is new enough, in one remote start."""
    return ["sh", "-c", START, "orch-agent", BOOT, *pythons]


@cache
def build_bundle() -> Bundle:
    """Raises OSError."""
    files = bundle_files()
    loader = files["loader.py"]
    packed = b"".join(b"%s %d\n" % (name.encode("ascii"), len(text)) + text for name, text in files.items())
    agent_hash = hash_of(files)
    # Level 9 takes twice as long to save half a percent.
    blob = zlib.compress(loader + b"\0" + agent_hash.encode("ascii") + b"\n" + packed, 6)
    return Bundle(agent_hash=agent_hash, preamble=b"orch%08d" % len(blob) + blob)


def bundle_files() -> dict[str, bytes]:
    """File name in `orch_agent` -> source: far/*.py and the run contract."""
    return dict(sorted(sources().items()))

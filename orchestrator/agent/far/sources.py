"""The agent's own source files, whether it runs from a bundle or from a checkout, and the hash that names them."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Dict


def sources() -> Dict[str, bytes]:
    """File name -> source, sorted by name; contract.py is among them."""
    bundled = getattr(sys.modules[__package__ or ""], "SOURCES", None)
    if bundled is not None:
        return dict(bundled)
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = {name: os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")}
    if "contract.py" not in paths:
        top = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
        paths["contract.py"] = os.path.join(top, "remote_payload", "contract.py")
    found = {}
    for name in sorted(paths):
        with open(paths[name], "rb") as stream:
            found[name] = stream.read()
    return found


def agent_hash() -> str:
    bundled = getattr(sys.modules[__package__ or ""], "AGENT_HASH", None)
    return hash_of(sources()) if bundled is None else str(bundled)


def hash_of(files: Dict[str, bytes]) -> str:
    """16 hex digits over names and contents."""
    import hashlib  # milliseconds that a bundled agent, which is told its hash, need not spend

    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(b"%s %d\n" % (name.encode("ascii"), len(files[name])))
        digest.update(files[name])
    return digest.hexdigest()[:16]

"""Writes the agent's own sources to <base>/lib/<hash>/, from where the wrapper of a run is started.

    python3 <base>/lib/<hash> wrapper ...

Rule: a folder with that name is complete, because it got its name by rename.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from .durable import write_synced
from .sources import hash_of, sources

MAIN = b"""import sys

from orch_agent.ops import find_command

sys.exit(find_command(sys.argv[1])(sys.argv[2:]))
"""


def install_library(base: str) -> str:
    """The library's folder. Does nothing when it is there already. Raises OSError."""
    files = sources()
    store = os.path.join(base, "lib")
    final = os.path.join(store, hash_of(files))
    if os.path.isdir(final):
        return final
    os.makedirs(store, exist_ok=True)
    staging = tempfile.mkdtemp(prefix=".incoming-", dir=store)
    try:
        package = os.path.join(staging, "orch_agent")
        os.mkdir(package)
        for name, text in files.items():
            write_synced(os.path.join(package, name), text)
        write_synced(os.path.join(staging, "__main__.py"), MAIN)
        os.chmod(staging, 0o755)
        try:
            os.rename(staging, final)
        except OSError:
            # Somebody else was faster: a folder that is not empty cannot be replaced by rename.
            if not os.path.isdir(final):
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return final

"""Guards the suite before anything else of it is imported: no test can reach another machine."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

GUARD = str(Path(__file__).resolve().parent / "guard")
sys.path.insert(0, GUARD)

import network_guard  # noqa: E402

network_guard.install()
_paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != GUARD]
os.environ["PYTHONPATH"] = os.pathsep.join([GUARD, *_paths])

from hypothesis import settings  # noqa: E402

# What orch remembers between two commands is the person's: the suite, and all that it starts, has a place of its own.
if "ORCH_TEST_CACHE" not in os.environ:
    os.environ["ORCH_TEST_CACHE"] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="orch-test-cache-")
    os.environ["XDG_DATA_HOME"] = os.environ["XDG_CACHE_HOME"] + "/data"
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Who starts the suite in the background may have ignored SIGINT for it, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: how long an example takes says nothing.
settings.register_profile("orch", deadline=None)
# The same examples each time for the same code: what is new in a run that judges a change is the change.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable" if os.environ.get("CI") else "orch")

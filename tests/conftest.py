"""Guards the suite before anything else of it is imported: no test can reach another machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

GUARD = str(Path(__file__).resolve().parent / "guard")
sys.path.insert(0, GUARD)

import network_guard  # noqa: E402

network_guard.install()
_paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != GUARD]
os.environ["PYTHONPATH"] = os.pathsep.join([GUARD, *_paths])

from hypothesis import settings  # noqa: E402

# Who starts the suite in the background may have ignored SIGINT for it, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: how long an example takes says nothing.
settings.register_profile("orch", deadline=None)
settings.load_profile("orch")

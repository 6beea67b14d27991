"""uv's wheel for the tests that build environments; `python -m tests.uv_wheel` fetches it, which needs a network.

`pip install uv` would not do: it leaves the program, and what travels to a target is the wheel.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.far.env_facts import QUESTION
from orchestrator.agent.wheels import fetch, read_wheel, wheel_names
from orchestrator.ledger.lock import choose_wheel
from orchestrator.operations.wheels import uv_lock
from orchestrator.probes.interpreter import Interpreter, parse_interpreter

FOLDER = Path(sys.prefix) / "wheels"


def uv_wheel() -> Path:
    """Fails the test when it is not there: a suite that skips what it cannot do says nothing."""
    found = find()
    if found is None:
        pytest.fail(f"uv's wheel is not in {FOLDER}: run `python -m tests.uv_wheel` once (make setup does)")
    return found


def find() -> Path | None:
    here = interpreter()
    (uv,) = uv_lock().wanted(here)
    names = wheel_names(FOLDER) if FOLDER.is_dir() else []
    paths = (FOLDER / name for name in choose_wheel(uv, names, here))
    return next((path for path in paths if read_wheel(path).sha256 in uv.hashes), None)


def interpreter() -> Interpreter:
    said = subprocess.run([sys.executable, "-I", "-c", QUESTION], stdout=subprocess.PIPE, check=True).stdout
    found = parse_interpreter(json.loads(said))
    assert isinstance(found, Interpreter), found
    return found


def main() -> None:
    if find() is None:
        here = interpreter()
        (uv,) = uv_lock().wanted(here)
        FOLDER.mkdir(exist_ok=True)
        major, minor = here.version_numbers
        said = asyncio.run(fetch(uv.line(), here.platforms, f"{major}.{minor}", (), FOLDER))
        if said is not None:
            sys.exit(f"uv's wheel could not be fetched: {said}")
    print(find())


if __name__ == "__main__":
    main()

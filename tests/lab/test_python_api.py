"""examples/nightly.py on the embedded lab: as it stands, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from tests.lab.place import PROJECT, Place, said
from tests.publishing import TRAINER

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROJECT)}
EXAMPLE = PROJECT / "examples" / "nightly.py"


@pytest.mark.lab
def test_the_nightly_script_publishes_and_refuses_what_is_worse(embedded_lab: EmbeddedLab, tmp_path: Path) -> None:
    place = Place(embedded_lab, tmp_path, "B")
    (place.payload / "train.py").write_text(TRAINER)
    told = tmp_path / "told"
    argv = [sys.executable, str(EXAMPLE), str(place.inventory), "ct200:" + f"{place.base}-published"]

    def night(tau: float, **settings: object) -> tuple[int, str]:
        place.write(command=["python3", "train.py"], settings={"tau": tau, **settings})
        messenger = ["sh", "-c", f'cat >"{told}"; echo "$ORCH_OUTCOME" >>"{told}"']
        done = embedded_lab.run([*argv, *messenger], cwd=tmp_path, env=place.environment(), timeout_s=120)
        assert done.returncode != 1, said(done)
        return done.returncode, told.read_text()

    def published() -> dict[str, object]:
        listed = json.loads(place.ok("publish", "--to", f"ct200:{place.base}-published", "--list", "--json"))
        return dict(listed["publications"][0], tree_hash=listed["current"])

    try:
        code, message = night(3.0, seed=1)
        assert code == 0, message
        assert message.splitlines()[-1] == "done" and "is published: tau 3.00" in message
        first = published()
        code, message = night(2.9, seed=2)
        assert (code, message.splitlines()[-1]) == (14, "failed") and "the published one has 3.00" in message
        assert published() == first
        code, message = night(3.5, seed=3, code=5)
        assert code == 11 and "exit code 5" in message and published() == first
        code, message = night(3.1, seed=4)
        assert code == 0 and published()["acceptance_length"] == 3.1
        snapshots = json.loads(place.ok("cache", "list", "--json"))
        assert str(published()["run_id"]) in json.dumps(snapshots)
    finally:
        place.clean()


def test_what_is_wrong_before_it_begins_is_told_too(tmp_path: Path) -> None:
    messenger = ["sh", "-c", f"cat >'{tmp_path}/told'"]
    argv = [sys.executable, str(EXAMPLE), str(tmp_path / "none.yaml"), str(tmp_path), *messenger]
    done = subprocess.run(argv, cwd=PROJECT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "")
    assert "none.yaml cannot be read" in (tmp_path / "told").read_text()
    done = subprocess.run(argv[:3], cwd=PROJECT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "examples/nightly.py INVENTORY WHERE" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_is_as_short_as_promised() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60

"""What a seeded cache is worth, and the warm-up trap: torch's true CPU compiler in the real lab's container."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said

COMPILING = Path(__file__).with_name("compiling.py")
COUNTED = ("cache_hits", "cache_misses", "aot_cache_hits", "aot_cache_misses")

pytestmark = pytest.mark.real_lab


class WarmPlace(Place):
    cold: dict[str, Any]

    def runs(self, *words: str, warmup: str = "warm") -> None:
        variables = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command, warm = ["python", "compiling.py", *words], ["python", "compiling.py", warmup]
        self.write(command=command, warmup=warm, python=sys.executable, variables=variables)

    def json(self, *words: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.ok(*words, "--json", timeout_s=300))
        return told

    def launch(self, *words: str) -> dict[str, Any]:
        self.ok("launch", *words, "--wait", "end", timeout_s=300)
        run: dict[str, Any] = self.json("runs", "show", "last")["run"]
        return run

    def contents(self) -> dict[str, str]:
        """Path -> hash of each file of the live caches, as the container has it."""
        program = "cd $0 && find . -type f ! -name '*lock' -exec sha256sum {} +"
        lines = self.inside("sh", "-c", program, f"{self.base}/caches/live").splitlines()
        return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


@pytest.fixture(scope="module")
def place(real_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPlace]:
    """One cold run, and what it compiled as the snapshot `nightly`; the live cache is that, too."""
    place = WarmPlace(real_lab, tmp_path_factory.mktemp("warm"), "e1")
    shutil.copy(COMPILING, place.payload)
    place.runs()
    place.ok("deploy")
    place.cold = place.launch()
    place.ok("cache", "save", "nightly")
    yield place
    place.clean()


def test_a_seeded_launch_of_edited_code_finds_all_and_adds_nothing(place: WarmPlace) -> None:
    assert place.cold["status"]["compiled"] == dict(zip(COUNTED, (0, 4, 0, 2), strict=True))
    before = place.contents()
    place.ok("cache", "clear")
    # A comment, and with it another release folder and other line numbers.
    source = place.payload / "compiling.py"
    source.write_text("# a comment\n\n" + source.read_text())
    place.ok("deploy")
    text = place.ok("launch", "--seed", "nightly", "--wait", "end", timeout_s=300)
    assert "differs, judged by hits: code: " in text
    warm = place.json("runs", "show", "last")["run"]
    assert warm["status"]["compiled"] == dict(zip(COUNTED, (4, 0, 2, 0), strict=True))
    assert place.contents() == before and len(before) > 20
    assert warm["cache"]["seeded_from"] == "nightly"
    assert {folder["new_files"] for folder in warm["cache"]["after"]["folders"]} == {0}
    told = [run["runtime"]["first_step"] for run in (place.cold, warm)]
    print(json.dumps(told))
    assert told[1]["without_imports_and_load_s"] < told[0]["without_imports_and_load_s"] / 2
    status = place.status()
    assert (status["cache_warning"], status["cache"]["new_files"]) == (None, 0)
    assert "enough, by count, for the plan of run" in place.ok("cache", "show")


def test_a_warm_up_of_one_kernel_at_one_shape_is_told(place: WarmPlace) -> None:
    place.ok("cache", "clear")
    place.runs(warmup="trap")
    poor = place.orch("launch", "--warm", timeout_s=300)
    assert poor.returncode == 14, said(poor)
    assert b"the cache lacks cpu: 1 of the 4 graphs that the plan needs" in poor.stderr
    assert b"0 misses, 0 new files" in poor.stderr  # its second pass found all that the first had made
    assert place.status()["run"]["argv"][-1] == "trap"  # and nothing was launched
    assert "NOT ENOUGH: cpu: 1 of the 4 graphs" in place.ok("cache", "show")
    place.runs()
    runs = place.json("runs")["runs"]
    done = place.json("warmup", "--seed", "nightly", "--replace")
    assert done["done"] and len(done["passes"]) == 1 and done["enough"]["verdict"] is True
    proof = done["passes"][0]["run_id"]
    launched = place.orch("launch", "--warm", "--wait", "end", timeout_s=300)
    assert launched.returncode == 0 and f"warm: run {proof} found everything".encode() in launched.stderr, said(
        launched
    )
    assert len(place.json("runs")["runs"]) == len(runs) + 2  # no third warm-up

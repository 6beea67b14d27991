"""A package installed by hand is named by the next check, and the launch refuses or warns, as the inventory says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said
from tests.tiny_wheels import lock_line, make_wheel
from tests.uv_wheel import uv_wheel

numbers = itertools.count(1)
TRAINING = "import alpha\nprint('alpha', alpha.VERSION, flush=True)\n"
PIP = """\
import io, pathlib, sys, zipfile
site = next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"))
with zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())) as wheel:
    wheel.extractall(site)
"""
"""What pip does with a wheel, as far as a check can see."""


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"k{next(numbers)}")
    yield place
    place.clean()


def install_by_hand(place: Place, prefix: str, wheel: Path) -> None:
    done = place.orch("exec", "--", "python3", "-c", PIP, prefix, stdin=wheel.read_bytes())
    assert done.returncode == 0, said(done)


def write(place: Place, check: str, **payload: object) -> None:
    place.write(command=["python", "train.py"], environment_check=check, **payload)


@pytest.mark.real_lab
def test_a_package_installed_by_hand_is_named_and_the_launch_refuses_or_warns(place: Place) -> None:
    wheels, lock = place.folder / "wheels", place.folder / "train.txt"
    wheels.mkdir()
    uv = uv_wheel()
    (wheels / uv.name).symlink_to(uv)
    lock.write_text(lock_line(make_wheel(wheels, "alpha", "1.0")))
    (place.payload / "train.py").write_text(TRAINING)
    environments = {"train": {"lock": str(lock)}}
    write(place, "refuse", environments=environments)
    place.ok("deploy")
    place.ok("env", "sync", "--wheels", str(wheels))
    assert "passes" in place.ok("env", "check")
    assert "environment:" not in place.ok("launch", "--wait", "end")

    current = json.loads(place.inside("cat", f"{place.base}/envs/current.json"))["train"]["id"]
    prefix = f"{place.base}/envs/{current}"
    install_by_hand(place, prefix, make_wheel(place.folder, "sglang", "0.5.1"))
    checked = place.orch("env", "check")
    assert checked.returncode == 14 and "sglang 0.5.1 is installed; its lock" in said(checked), said(checked)
    record = json.loads(place.orch("env", "check", "--json").stdout)
    assert [(one["kind"], one["package"]) for one in record["findings"] if one["severity"] == "error"] == [
        ("extra", "sglang")
    ]
    refused = place.orch("launch")
    assert refused.returncode == 10 and "sglang 0.5.1 is installed" in said(refused), said(refused)
    assert "orch env sync --rebuild" in said(refused)
    assert "orch env sync --rebuild" in said(refused) and "orch env sync --rebuild" in said(checked)

    write(place, "warn", environments=environments)
    assert "environment: sglang 0.5.1 is installed" in said(place.orch("launch", "--wait", "end"))
    write(place, "off", environments=environments)
    silent = place.orch("launch", "--wait", "end")
    assert silent.returncode == 0 and "sglang" not in said(silent)

    write(place, "refuse", environments=environments)
    place.ok("env", "sync", "--rebuild", "--wheels", str(wheels))
    assert "passes" in place.ok("env", "check")
    place.ok("launch", "--wait", "end")


@pytest.mark.lab
def test_an_adopted_environment_is_compared_with_its_baseline(embedded_lab: Lab, tmp_path: Path) -> None:
    place = Place(embedded_lab, tmp_path, f"k{next(numbers)}")
    try:
        prefix = f"{place.base.removesuffix('/orch')}/venv"
        place.inside("python3", "-m", "venv", "--without-pip", prefix)
        install_by_hand(place, prefix, make_wheel(place.folder, "alpha", "1.0"))
        (place.payload / "train.py").write_text(TRAINING)
        write(place, "refuse", python=f"{prefix}/bin/python")
        place.ok("deploy")
        assert "there is no baseline" in place.ok("env", "check")
        assert "1 packages of" in place.ok("env", "baseline")
        assert "passes" in place.ok("env", "check", "--quick")
        place.ok("launch", "--wait", "end")

        site = place.inside("sh", "-c", f"echo {prefix}/lib/python3*/site-packages").strip()
        place.inside("sh", "-c", f"echo 'VERSION = 2' > {site}/alpha/__init__.py")
        checked = place.orch("env", "check", "--quick")
        assert checked.returncode == 14 and "alpha: 1 of its" in said(checked), said(checked)
        install_by_hand(place, prefix, make_wheel(place.folder, "alpha", "1.0", {"alpha.py": "VERSION = 3\n"}))
        refused = place.orch("launch")
        assert refused.returncode == 10 and "alpha 1.0 was installed anew since the baseline" in said(refused)
        place.ok("env", "baseline")
        place.ok("launch", "--wait", "end")
    finally:
        place.clean()

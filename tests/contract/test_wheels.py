"""Wheels for another machine than this one: found in a folder, or fetched by the real pip from an index of files."""

import hashlib
from pathlib import Path

import pytest

from orchestrator.errors import PreflightError, TransferError
from orchestrator.ledger.lock import parse_lock
from orchestrator.operations.wheels import find_wheels
from orchestrator.probes.interpreter import parse_interpreter
from tests.tiny_wheels import lock_line, make_wheel

ARM = "cp39-cp39-manylinux2014_aarch64"
INTEL = "cp39-cp39-manylinux2014_x86_64"
NEWER = "cp39-cp39-manylinux_2_38_aarch64"


def interpreter():
    """Python 3.9 on ARM: what this machine hardly is."""
    markers = {"implementation_name": "cpython", "python_version": "3.9", "platform_machine": "aarch64"}
    facts = {"executable": "/p", "version": "3.9.1", "platform": "linux-aarch64", "libc": "glibc 2.31"}
    return parse_interpreter({**facts, "markers": markers})


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of files; all that pip is configured with here is put aside."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "simple"


def publish(index, name, version, tag):
    wheel = make_wheel(index / name, name, version, tag=tag)
    links = "".join(f'<a href="{path.name}">{path.name}</a><br>' for path in sorted((index / name).glob("*.whl")))
    (index / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return wheel


def hashes(*wheels):
    return "".join(f" --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" for wheel in wheels)


async def find(lock, index, *, folder=None, told=None, public=None):
    uv = parse_lock(lock_line((public or index) / "uv" / "uv-1-py3-none-any.whl"), "uv.txt")
    said = told.append if told is not None else lambda text: None
    found = await find_wheels(parse_lock(lock, "train.txt"), interpreter(), uv, folder, [index.as_uri()], said)
    return sorted(entry.path for entry in found.tree.entries if entry.kind == "file")


@pytest.fixture
def published(index):
    """numbers in three builds, and one that only another Python wants."""
    wheels = [publish(index, "numbers", "1.0", tag) for tag in (ARM, INTEL, NEWER)]
    other = publish(index, "other", "1.0", "py3-none-any")
    publish(index, "uv", "1", "py3-none-any")
    return f"numbers==1.0{hashes(*wheels)}\nother==1.0 ; python_version >= '3.10' {hashes(other)}\n"


async def test_what_fits_the_target_is_fetched_once(published, index):
    told = []
    paths = ["lock.txt", "uv/uv-1-py3-none-any.whl", f"wheels/numbers-1.0-{ARM}.whl"]
    assert await find(published, index, told=told) == paths
    assert told == ["fetching 1 of 1: numbers 1.0", "fetching 1 of 1: uv 1"]
    for wheel in index.glob("*/*.whl"):
        wheel.rename(wheel.with_suffix(".gone"))
    (index / "uv" / "uv-1-py3-none-any.gone").rename(index / "uv" / "uv-1-py3-none-any.whl")
    assert await find(published, index, told=told) == paths and len(told) == 2


async def test_what_cannot_be_had_is_named_and_the_rest_is_kept(published, index):
    with pytest.raises(TransferError) as caught:
        await find(published + "absent==3 --hash=sha256:" + "0" * 64 + "\n", index)
    assert "1 of 2 wheels could not be fetched" in caught.value.what
    assert caught.value.evidence.startswith("absent 3: ") and "--index URL" in caught.value.way_out
    kept = Path(index.parent / "cache" / "orch" / "wheels")
    assert sorted(path.name for path in kept.iterdir()) == [f"numbers-1.0-{ARM}.whl"]


async def test_a_wheel_with_another_hash_is_not_taken(published, index):
    make_wheel(index / "numbers", "numbers", "1.0", {"numbers.py": "evil = True\n"}, tag=ARM)
    with pytest.raises(TransferError) as caught:
        await find(published, index)
    assert "numbers 1.0" in caught.value.evidence and "hash" in caught.value.evidence.lower()


async def test_uv_comes_from_pips_own_index_when_the_one_given_has_none(published, index, monkeypatch):
    public = index.parent / "public"
    public.mkdir()
    (index / "uv").rename(public / "uv")
    monkeypatch.setenv("PIP_INDEX_URL", public.as_uri())
    assert "uv/uv-1-py3-none-any.whl" in await find(published, index, public=public)


async def test_a_folder_of_wheels_needs_no_index(published, index):
    wheels = make_wheel(index.parent / "wheels", "numbers", "1.0", tag=ARM).parent
    with pytest.raises(TransferError) as caught:
        await find(published, index, folder=wheels)
    assert "lacks 1 of 1 wheels" in caught.value.what and "uv 1: no wheel for Python 3.9.1" in caught.value.evidence
    make_wheel(wheels, "uv", "1", {"uv.py": "evil = True\n"})
    with pytest.raises(TransferError, match="lacks 1 of 1 wheels") as caught:
        await find(published, index, folder=wheels)
    assert "is not what the lock's sha256 says" in caught.value.evidence
    make_wheel(wheels, "uv", "1")
    assert f"wheels/numbers-1.0-{ARM}.whl" in await find(published, index, folder=wheels)


async def test_a_lock_for_other_machines_only_asks_for_nothing(published, index):
    with pytest.raises(PreflightError, match="asks for nothing on aarch64"):
        await find(published.partition("\n")[2], index)


async def test_a_password_in_an_address_is_not_shown(published, index):
    from orchestrator.agent.wheels import fetch

    address = "file://me:hunter2@nowhere/simple"
    said = await fetch("absent==3 --hash=sha256:" + "0" * 64, ["linux_x86_64"], "3.9", [address], index.parent)
    assert said and "hunter2" not in said

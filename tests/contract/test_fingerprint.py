"""fingerprint.json of real starts: what is in it, what is never in it, and that it keeps nothing from starting."""

import json
import os
import sys
import threading
import time

import pytest

from orchestrator.agent.far import fingerprint, preflight
from orchestrator.ledger.fingerprint import parse_fingerprint
from orchestrator.probes.gpu import QUESTION

CANARY = "c4n4ry-0123456789abcdef"


def launch(place, **params):
    answer = place.start("pass", watch_s=20, **params)
    assert answer["started"]
    text = (place.folder(answer) / "fingerprint.json").read_text()
    return text, parse_fingerprint(json.loads(text))


def observed(place):
    asked = {"base": str(place.base), "python": sys.executable}
    python = preflight.preflight(asked, b"", None)["python"]
    return {"orch_version": "9.9", "container": {"memory": "1"}, "gpus": None, "python": python}


def test_a_real_start(place):
    release = place.base / "releases" / ("a" * 64)
    release.mkdir(parents=True)
    git = {"commit": "b" * 40, "branch": "main", "dirty_files": ["x.py"]}
    record = {"tree_hash": "a" * 64, "files": 3, "bytes": 77, "pushed_at": 5.0, "entries": []}
    place.base.joinpath("releases", f"{'a' * 64}.json").write_text(
        json.dumps({**record, "provenance": {"git": git, "payload": "dflash", "deployed_by": "ann@laptop"}})
    )
    cache = place.base / "caches" / "live" / "inductor"
    (cache / "fxgraph" / "aa" / "key").mkdir(parents=True)
    (cache / "fxgraph" / "aa" / "key" / "x").write_bytes(bytes(50))
    text, found = launch(
        place,
        release=str(release),
        spec={"settings": {"steps": 3}, "launched_by": "ann@laptop"},
        observed=observed(place),
        environment={"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": "/no/such"},
    )
    assert json.loads(text)["unknown"] == {}
    assert found.schema == "orch.fingerprint/2" and found.orch_version == "9.9"
    assert (found.release.tree_hash, found.release.git_commit) == ("a" * 64, "b" * 40)
    assert (found.release.git_branch, found.release.git_dirty_files) == ("main", ("x.py",))
    assert found.python == ".".join(map(str, sys.version_info[:3])) and found.python_path == sys.executable
    assert found.packages["pytest"] == pytest.__version__ and "pyyaml" in found.packages
    assert found.variables["TORCHINDUCTOR_CACHE_DIR"] == str(cache)
    assert found.spec["settings"] == {"steps": 3} and "environment" not in found.spec
    assert (found.cache.bytes, found.cache.entries) == (50, 1)
    assert found.kernel == os.uname().release and found.hostname == os.uname().nodename
    assert found.limits.cpus and found.limits.shm_bytes and found.limits.disk_free_bytes
    assert found.gpus is None, "there is no nvidia-smi"


def test_what_may_be_secret_is_never_in_it(place):
    names = ["HF_TOKEN", "WANDB_API_KEY", "NCCL_AUTH", "TORCH_SECRET_X", "PYTHON_PASSWORD", "MY_SETTING"]
    environment = {name: CANARY for name in names}
    environment["HF_ENDPOINT"] = f"https://me:{CANARY}@hub"
    environment.update(NCCL_DEBUG="INFO", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    text, found = launch(place, environment=environment)
    assert CANARY not in text
    assert set(names) | {"HF_ENDPOINT"} <= set(found.other_variables)
    assert found.variables["NCCL_DEBUG"] == "INFO" and "PYTORCH_CUDA_ALLOC_CONF" in found.variables


def test_with_nothing_observed_the_rest_is_there(place):
    _, found = launch(place)
    assert (found.packages, found.torch, found.python, found.gpus) == (None, None, None, None)
    assert found.kernel and found.variables["PYTHONUNBUFFERED"] == "1"


def test_what_hangs_or_fails_is_null_and_the_run_starts(place, monkeypatch):
    hang = threading.Event()
    monkeypatch.setattr(fingerprint, "DEADLINE_S", 0.3)
    monkeypatch.setattr(fingerprint, "limits", lambda: 1 / 0)
    monkeypatch.setattr(fingerprint, "cache_facts", lambda environment: hang.wait(60))
    began = time.monotonic()
    text, found = launch(place)
    hang.set()
    assert found.cache is None and found.limits is None and found.kernel
    assert "division" in found.unknown["limits"] and "not done within" in found.unknown["cache"]
    why = json.loads(text)["unknown"]
    assert {"limits", "cache"} <= set(why) and not any("NotAskedError" in said for said in why.values())
    assert time.monotonic() - began < 30


def test_a_disk_that_is_full_for_it_keeps_nothing_from_starting(place, monkeypatch):
    whole = fingerprint.records.write_record

    def full(folder, name, record):
        if name == "fingerprint.json":
            raise OSError(28, "No space left on device")
        whole(folder, name, record)

    monkeypatch.setattr(fingerprint.records, "write_record", full)
    answer = place.start("pass", watch_s=20)
    assert answer["started"] and not (place.folder(answer) / "fingerprint.json").exists()


def test_the_question_for_the_gpus_is_the_statuss(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >&2; echo "0, NVIDIA H200, 143771, 5, 0"')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asked = {"base": str(tmp_path), "nvidia_smi": list(QUESTION)}
    said = preflight.preflight(asked, b"", None)["nvidia_smi"]
    found = parse_fingerprint({"schema": "orch.fingerprint/1", "nvidia_smi": said})
    assert [(gpu.index, gpu.name, gpu.memory_total_mib) for gpu in found.gpus] == [(0, "NVIDIA H200", 143771)]

"""Each section of a fingerprint, from real files: what it tells, and that it tells the same of the same."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from orchestrator.agent.far import (
    cgroup,
    content,
    env_dists,
    fingerprint,
    gpu_identity,
    kept_files,
    package_edits,
    packages,
    release_facts,
    variables,
)
from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.framing import encode_frame
from orchestrator.agent.far.manifest import tree_hash
from orchestrator.agent.far.release_store import write_record
from orchestrator.agent.far.scan import scan
from orchestrator.container.config import config_file, parse_config
from orchestrator.operations import comparison


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- packages ------------------------------------------------------------------------------------


def dist(folder: Path, name: str, record: str | None = None, url: object = None) -> Path:
    info = folder / f"{name}.dist-info"
    info.mkdir(parents=True)
    if record is not None:
        (info / "RECORD").write_text(record)
    if url is not None:
        (info / "direct_url.json").write_text(url if isinstance(url, str) else json.dumps(url))
    return info


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://u:hunter2@h/x.git", "https://h/x.git"),
        ("https://u:hun@ter2@h/x.git", "https://h/x.git"),
        ("https://u:hun/ter2@h/x.git", "https://h/x.git"),
        ("https://h/x.whl?X-Amz-Signature=hunter2#subdirectory=a", "https://h/x.whl?...#subdirectory=a"),
        ("file:///home/ann@lab/src", "file:///home/ann@lab/src"),
    ],
)
def test_no_login_and_no_signature_of_an_address_is_told(tmp_path: Path, url: str, told: str) -> None:
    info = dist(tmp_path, "x-1.0", url={"url": url})
    assert packages.origins([str(tmp_path)]) == {"x": told}
    assert env_dists.distribution(str(info), info.name)["url"] == told


def test_a_file_of_a_package_edited_by_hand_is_seen(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    contents = {
        "torch/a.py": b"a",
        "torch/b.py": b"b",
        "torch/c.py": b"c",
        "torch/touched.py": b"t",
        "torch/lib/x.so": b"x",
    }
    rows = []
    for name, data in contents.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
        os.utime(site / name, (1000, 1000))
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    info = dist(site, "torch-2.0", "".join(rows))
    os.utime(info / "RECORD", (1001, 1001))
    assert package_edits.package_edits([str(site)]) == {}
    (site / "torch/a.py").write_bytes(b"A")
    (site / "torch/b.py").unlink()
    (site / "torch/c.py").write_bytes(b"longer")
    os.utime(site / "torch/c.py", (1000, 1000))
    os.utime(site / "torch/touched.py")
    (site / "torch/lib/x.so").unlink()
    (site / "torch/lib/x.so").symlink_to(tmp_path / "other.so")
    (tmp_path / "other.so").write_bytes(b"another")
    (site / "hook.pth").write_bytes(b"import os")
    (site / "torch/new.py").write_bytes(b"not loaded by anything that was installed")
    assert package_edits.package_edits([str(site)]) == {
        "hook.pth": sha256(b"import os"),
        "torch/a.py": sha256(b"A"),
        "torch/b.py": "missing",
        "torch/c.py": sha256(b"longer"),
        "torch/lib/x.so": sha256(b"another"),
    }


def test_where_a_package_came_from_without_its_login(tmp_path: Path) -> None:
    dist(tmp_path, "a-1", url={"url": "file:///src/a", "dir_info": {"editable": True}})
    dist(tmp_path, "b-1", url={"url": "https://me:hunter2@git/b", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    dist(tmp_path, "c-1", url={"url": "https://host/c.whl", "archive_info": {}})
    dist(tmp_path, "d-1")
    dist(tmp_path, "e-1", url="{")
    dist(tmp_path, "f-1", url="[]")
    assert packages.origins([str(tmp_path)]) == {
        "a": "editable file:///src/a",
        "b": "git+https://git/b@abc",
        "c": "https://host/c.whl",
        "e": "not to be read",
        "f": "not to be read",
    }


def test_another_build_of_a_version_has_another_hash_and_another_installer_has_not(tmp_path: Path) -> None:
    files = "x/__init__.py,sha256=A,1\nx/core.so,sha256=B,2\n"
    dist(
        tmp_path / "pip", "x-1", files + "x/__pycache__/a.pyc,,\n../../../bin/x,sha256=Q,1\nx-1.dist-info/INSTALLER,,\n"
    )
    dist(tmp_path / "uv", "x-1", "x-1.dist-info/RECORD,,\n" + "\n".join(reversed(files.splitlines())))
    dist(tmp_path / "other", "x-1", files.replace("=B", "=C"))
    dist(tmp_path / "none", "x-1")
    pip, uv, other, none = (packages.builds([str(tmp_path / name)]) for name in ("pip", "uv", "other", "none"))
    assert pip == uv and pip != other and none == {} and len(pip["x"]) == 16


# -- variables -----------------------------------------------------------------------------------


def test_a_secret_can_be_compared_and_not_be_read(tmp_path: Path) -> None:
    base = str(tmp_path)
    first = variables.variable_facts({"HF_TOKEN": "hunter2", "NCCL_DEBUG": "INFO", "ORCH_RUN_ID": "r1"}, base)
    again = variables.variable_facts({"HF_TOKEN": "hunter2", "OTHER": "hunter2", "ORCH_RUN_ID": "r2"}, base)
    assert first["values"] == {"NCCL_DEBUG": "INFO"} and "ORCH_RUN_ID" not in first["hashed"]
    assert first["hashed"]["HF_TOKEN"] == again["hashed"]["HF_TOKEN"] != again["hashed"]["OTHER"]
    assert first["key"] == again["key"]
    key = tmp_path / variables.KEY
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    assert key.read_bytes().hex() not in json.dumps(first) and sha256(b"hunter2")[:32] not in json.dumps(first)
    assert os.listdir(base) == [variables.KEY], "no draft is left"


def test_another_target_has_another_key(tmp_path: Path) -> None:
    told = [variables.variable_facts({"HF_TOKEN": "x"}, str(tmp_path / name)) for name in "ab"]
    assert told[0]["key"] != told[1]["key"] and told[0]["hashed"] != told[1]["hashed"]


def test_a_key_that_is_none_is_an_error_and_not_a_weak_key(tmp_path: Path) -> None:
    (tmp_path / variables.KEY).write_bytes(b"")
    with pytest.raises(OSError, match="is no key"):
        variables.variable_facts({"A": "b"}, str(tmp_path))


def test_names_of_release_and_environment_do_not_count() -> None:
    release, python = f"/r/orch/releases/{'a' * 64}", "/r/orch/envs/abc/bin/python"
    told = variables.settled(f"/r/orch/envs/abc/bin:{release}/lib:/usr/bin", "/r/orch", python)
    assert told == "{python}:{release}/lib:/usr/bin"
    assert variables.settled("/root/venv/bin:/bin", "/r/orch", "/root/venv/bin/python") == "{python}:/bin"
    assert variables.settled("/r/orch/envs/abc/lib:/x", "/r/orch", None) == "{environment}/lib:/x"
    assert variables.settled("/r/orch/caches/live", "/r/orch", None) == "/r/orch/caches/live"


# -- data and model ------------------------------------------------------------------------------


def test_data_is_its_names_sizes_and_content(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "a").write_bytes(b"aaaa")
    (data / "sub/b").write_bytes(bytes(1_000_000))
    first = content.content_facts(str(data), {})
    assert first == content.content_facts(str(data), {}) and first is not None
    assert (first["files"], first["bytes"]) == (2, 1_000_004)
    os.utime(data / "a", (1, 1))
    assert content.content_facts(str(data), {}) == first, "when it was written does not count"
    changed = [first["sample"]]
    for change in (
        lambda: (data / "a").write_bytes(b"aaab"),
        lambda: (data / "a").rename(data / "c"),
        lambda: (data / "sub/b").write_bytes(bytes(500_000) + b"x" + bytes(499_999)),
        lambda: (data / "sub/b").write_bytes(bytes(999_999) + b"x"),
    ):
        change()
        told = content.content_facts(str(data), {})
        assert told is not None
        changed.append(told["sample"])
    assert len(set(changed)) == len(changed)


def test_one_file_a_missing_one_and_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    told = content.content_facts(str(tmp_path / "x"), {})
    assert told is not None and (told["files"], told["bytes"]) == (1, 1)
    assert content.content_facts(str(tmp_path / "no"), {}) == {"missing": True}
    assert content.content_facts(None, {}) is None


def test_a_hub_name_is_its_revision(tmp_path: Path) -> None:
    refs = tmp_path / "hub/models--Qwen--Qwen3-8B/refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc123\n")
    assert content.content_facts("Qwen/Qwen3-8B", {"HF_HOME": str(tmp_path)}) == {"revision": "abc123"}
    assert content.content_facts("Qwen/Other", {"HF_HOME": str(tmp_path)}) == {"revision": None}
    assert content.hub_revision("../../x", {"HF_HOME": str(tmp_path)}) is None


def test_too_much_or_too_late_is_unknown_and_never_half_an_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x")
    monkeypatch.setattr(content, "MAX_FILES", 19)
    with pytest.raises(ValueError, match="more than 19"):
        content.content_facts(str(tmp_path), {})

    def late() -> None:
        raise TimeoutError

    monkeypatch.setattr(content, "MAX_FILES", 20)
    with pytest.raises(TimeoutError):
        content.content_facts(str(tmp_path), {}, late)


def test_of_many_files_the_same_ones_are_sampled_with_the_first_and_the_last() -> None:
    files = [(str(number), 1, 0.0) for number in range(1000)]
    chosen = content.chosen(files)
    assert len(chosen) == content.SAMPLED_FILES == len(set(chosen))
    assert (chosen[0], chosen[-1]) == (files[0], files[-1])


# -- code ----------------------------------------------------------------------------------------


PROVENANCE = {"git": {"commit": "c"}, "payload": "p", "deployed_by": "a@b", "exclude": ["/runs", "*.tmp.py"]}


def make_release(store: Path, files: dict[str, str]) -> Path:
    draft = store / "draft"
    for name, text in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_text(text)
    (draft / "link").symlink_to("train.py")
    entries = scan(str(draft), [])
    release = store / tree_hash(entries)
    draft.rename(release)
    (store / ".incoming").mkdir()
    write_record(str(release), release.name, entries, PROVENANCE)
    return release


def test_what_was_edited_in_a_release(tmp_path: Path) -> None:
    release = make_release(tmp_path / "releases", {"train.py": "1\n", "lib/a.py": "2\n", "run.sh": "3\n"})
    assert release_facts.edited(str(release)) == {}
    listing = (release_facts.release_facts(str(release)) or {})["listing"]
    assert listing["link"] == "-> train.py" and listing["train.py"] == sha256(b"1\n") and "lib" not in listing
    (release / "train.py").write_text("hack\n")
    (release / "lib/a.py").unlink()
    (release / "run.sh").chmod(0o755)
    (release / "link").unlink()
    (release / "link").symlink_to("run.sh")
    (release / "new.py").write_text("4\n")
    (release / "out.log").write_text("a training may write this\n")
    (release / "x.tmp.py").write_text("and what the deploy leaves out\n")
    (release / "__pycache__").mkdir()
    (release / "runs").mkdir()
    (release / "runs/config.yaml").write_text("settings of a run by hand")
    (release / "__pycache__/train.py").write_text("x")
    assert release_facts.edited(str(release)) == {
        "lib/a.py": "missing",
        "link": "-> run.sh",
        "new.py": sha256(b"4\n"),
        "run.sh": sha256(b"3\n") + "+x",
        "train.py": sha256(b"hack\n"),
    }
    assert release_facts.edited(str(tmp_path)) is None, "it is no release"


def test_whether_files_are_as_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("a")
    other = tmp_path / "elsewhere.py"
    other.write_text("b")
    expected = {"a.py": "md5:" + hashlib.md5(b"a").hexdigest(), str(other): "sha256:" + "0" * 64, "no.py": "md5:x"}
    assert release_facts.expected_files(str(tmp_path), expected) == {
        "a.py": {"found": sha256(b"a"), "as_expected": True},
        str(other): {"found": sha256(b"b"), "as_expected": False},
        "no.py": {"found": "missing", "as_expected": False},
    }
    monkeypatch.chdir(tmp_path)
    assert release_facts.expected_files("", {"a.py": "md5:x"}) == {"a.py": {"found": "missing", "as_expected": False}}


def test_contents_are_kept_and_found_again_by_their_hash(tmp_path: Path) -> None:
    base = tmp_path / "orch"
    release = make_release(base / "releases", {"train.py": "1\n"})
    run = base / "runs" / "r1"
    run.mkdir(parents=True)
    (release / "train.py").write_text("hack\n")
    identity = {"edited": release_facts.edited(str(release)), "expected": None}
    kept_files.keep(str(run), fingerprint.files_to_keep(str(release), identity))
    (release / "train.py").write_text("1\n")
    (tmp_path / "now.py").write_text("now\n")
    texts = (b"hack\n", b"1\n", b"now\n", b"never\n")
    wanted = [sha256(text) for text in texts]
    channel = Channel(1, lambda header, body: None)
    asked = {"base": str(base), "wanted": wanted, "paths": [str(tmp_path / "now.py"), "/dev/zero"]}
    told, body = kept_files.file_contents(asked, b"", channel)
    found, at = {}, 0
    for name, size in told["found"]:
        found[name] = body[at : at + size]
        at += size
    assert found == {sha256(text): text for text in texts[:3]}
    (release / "train.py").write_text("2\n")
    assert [name for name, _ in kept_files.file_contents(asked, b"", channel)[0]["found"]] == sorted(
        [wanted[0], wanted[2]]
    ), "a file that is no longer what its release says is not taken for it"


def test_a_link_to_a_folder_counts_by_where_it_leads_and_a_loop_hides_nothing(tmp_path: Path) -> None:
    for name in ("data", "old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "a.bin").write_text("a")
    (tmp_path / "data" / "loop").symlink_to("loop")
    told = []
    for target in ("../old", "../new"):
        (tmp_path / "data" / "shard").unlink(missing_ok=True)
        (tmp_path / "data" / "shard").symlink_to(target)
        told.append(content.content_facts(str(tmp_path / "data"), {}))
    assert told[0] and told[1] and told[0]["files"] == told[1]["files"] == 1
    assert told[0]["sample"] != told[1]["sample"]


def test_so_many_contents_are_told_at_once_that_a_frame_holds_them(tmp_path: Path) -> None:
    texts = [bytes([number]) * kept_files.MAX_FILE_BYTES for number in range(kept_files.MAX_WANTED + 20)]
    (tmp_path / "runs").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_bytes(text)
    paths = [str(tmp_path / str(number)) for number in range(len(texts))]
    asked = {"base": str(tmp_path), "wanted": [sha256(text) for text in texts], "paths": paths}
    told, body = kept_files.file_contents(asked, b"", Channel(1, lambda header, body: None))
    assert len(told["found"]) == kept_files.MAX_WANTED == comparison.MAX_WANTED
    assert encode_frame(told, body)


def test_each_place_is_read_once_however_much_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.py").write_text("x")
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(kept_files.os, "open", lambda path, *rest: opened.append(path) or real(path, *rest))
    asked = {
        "base": str(tmp_path),
        "wanted": [f"{number:064d}" for number in range(40)],
        "paths": [str(tmp_path / "x.py")] * 9,
    }
    assert kept_files.file_contents(asked, b"", Channel(1, lambda header, body: None))[0] == {"found": []}
    assert opened == [str(tmp_path / "x.py")]


# -- GPUs, limits, container ---------------------------------------------------------------------


def test_gpus_are_told_as_far_as_the_driver_knows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(
        '#!/bin/sh\ncase "$1" in *vbios*) echo "Field x is not a valid field to query."; exit 2;; esac\n'
        'echo "0, NVIDIA A100, 81920, 470.1, GPU-1"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = gpu_identity.gpu_facts()
    assert told is not None and told["driver"] == "470.1"
    assert [(gpu["name"], gpu["memory_total_mib"], gpu["vbios"]) for gpu in told["identity"]] == [
        ("NVIDIA A100", 81920, None)
    ]
    every = [name for name in (*gpu_identity.IDENTITY, *gpu_identity.STATE, "driver") if name != "compute_cap"]
    script.write_text(
        '#!/bin/sh\ncase "$1" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field"; exit 2;; esac\n'
        f'echo "{", ".join(every)}"\n'
    )
    old = gpu_identity.gpu_facts()
    assert old is not None and (old["identity"][0]["vbios"], old["identity"][0]["capability"]) == (
        "vbios_version",
        None,
    )
    script.write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    with pytest.raises(ValueError, match="No devices were found"):
        gpu_identity.gpu_facts()
    monkeypatch.setenv("PATH", str(tmp_path / "no"))
    assert gpu_identity.gpu_facts() is None


@pytest.mark.parametrize(
    ("memory", "cpu", "expected"),
    [
        ("max\n", "max 100000\n", {"memory_bytes": "none", "cpu_cores": "none"}),
        ("1024\n", "200000 100000\n", {"memory_bytes": 1024, "cpu_cores": 2.0}),
        (None, None, {"memory_bytes": None, "cpu_cores": None}),
    ],
)
def test_no_limit_is_told_from_a_limit_that_nobody_can_see(
    tmp_path: Path, memory: str | None, cpu: str | None, expected: dict[str, object]
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for name, text in (("memory.max", memory), ("cpu.max", cpu)):
        if text is not None:
            (tmp_path / "sys/fs/cgroup" / name).write_text(text)
    assert cgroup.limit_facts(f"{tmp_path}/") == expected


def test_a_containers_file_is_read_without_its_snapshots_and_secrets() -> None:
    assert config_file("pct", 200) == "/etc/pve/lxc/200.conf" and config_file("none", None) is None
    text = (
        "# a note: with a colon\narch: amd64\nmemory: 65536\nlock: backup\nparent: before\n"
        "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 509:* rwm\n"
        "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\n"
        "lxc.environment: TOKEN=hunter2\nlxc.environment.runtime = TOKEN=hunter2\n\n[before]\nmemory: 1024\n"
    )
    assert parse_config(text) == {
        "arch": "amd64",
        "lxc.cgroup2.devices.allow": "c 195:* rwm; c 509:* rwm",
        "lxc.environment": "TOKEN=...",
        "lxc.environment.runtime": "TOKEN=...",
        "lxc.mount.entry": "/dev/nvidia0 dev/nvidia0 none bind,optional,create=file",
        "memory": "65536",
    }

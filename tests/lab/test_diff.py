"""`orch diff` on a real container: each single change is seen, alone, and at the top; nothing changed is no difference.

One baseline run; then one change after the other on the target, the host or in the inventory, each taken back again.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.diagnosis.comparable import COMPILER
from orchestrator.lab.real import RealLab
from tests.lab.place import Place, said

pytestmark = pytest.mark.real_lab
numbers = itertools.count(1)

TRAIN = """\
import os, shutil
for step in range(1, 4):
    print(f"step {step} loss 0.5 21500.0 tok/s", flush=True)
if os.path.exists(os.environ["RUNTIME"]):
    shutil.copy(os.environ["RUNTIME"], os.environ["ORCH_RUN_DIR"] + "/runtime.json")
"""
SECRET = "hunter2-0123456789"
TORCH = "__version__ = '2.11.0+{0}'\ncuda = '{1}'\ngit_version = '{2}'\nhip = None\n"
CONFIG = "/etc/pve/lxc/200.conf"
PLAIN: dict[str, Any] = {name: {} for name in COMPILER}
RUNTIME: dict[str, Any] = {
    "torch": "2.11.0+cu128",
    "cuda": "12.8",
    "compiler_settings": PLAIN,
    "replaced_functions": {},
}
SETUP = """\
set -e
mkdir -p "$1/site/torch" "$1/site/requests" "$1/data" "$1/model" "$2/envs/aaaa/bin"
for name in torch-2.11.0+cu128 requests-2.0; do mkdir "$1/site/$name.dist-info"; done
printf 1 > "$1/site/requests/__init__.py"
printf 'requests/__init__.py,sha256=x,1\\nrequests-2.0.dist-info/RECORD,,\\n' > "$1/site/requests-2.0.dist-info/RECORD"
ln -s "$3" "$2/envs/aaaa/bin/python"
printf 'home = %s\\ninclude-system-site-packages = false\\n' "$(dirname "$3")" > "$2/envs/aaaa/pyvenv.cfg"
for minor in 8 9 10 11 12 13 14; do
    mkdir -p "$2/envs/aaaa/lib/python3.$minor"; ln -s "$1/site" "$2/envs/aaaa/lib/python3.$minor/site-packages"
done
ln -s aaaa "$2/envs/bbbb"
printf aaaa > "$1/data/a.bin"; printf weights > "$1/model/w.bin"; printf 'x = 1\\n' > "$1/dflash_model.py"
mkdir -p "$2/caches/live/inductor"; head -c 100000 /dev/zero > "$2/caches/live/inductor/kernel.so"
"""


class Target:
    """A place whose environment, data and model are small files that a test can change."""

    def __init__(self, place: Place, lab: RealLab) -> None:
        self.place, self.lab = place, lab
        self.root = place.base.removesuffix("/orch")
        self.release = ""
        self.payload: dict[str, Any] = {
            "command": ["python", "train.py"],
            "python": f"{place.base}/envs/aaaa/bin/python",
            "variables": {"NCCL_DEBUG": "INFO", "HF_TOKEN": SECRET, "RUNTIME": f"{self.root}/runtime.json"},
            "settings": {"optimizer.lr": 0.1},
            "topology": {"targets": 5, "drafters": 3},
            "data": f"{self.root}/data",
            "model": f"{self.root}/model",
            "expected": {"hashes": {f"{self.root}/dflash_model.py": "sha256:" + "0" * 64}},
        }

    def inside(self, script: str, *words: str) -> None:
        """A shell's script in the container; `$1`: the target's root, `$2`: the live release."""
        argv = ["sh", "-c", script, "sh", self.root, self.release, *words]
        self.lab.host_run(["lxc-attach", "-n", "200", "--clear-env", "--", *argv])

    def put(self, path: str, text: str) -> None:
        self.inside('printf %s "$4" > "$1/$3"', path, text)

    def write(self, **changes: Any) -> None:
        self.place.write(**{**self.payload, **changes})

    def git(self, *words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(self.place.payload), *identity, *words], check=True, capture_output=True)

    def deploy(self, text: str) -> None:
        (self.place.payload / "train.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--message", f"Write {len(text)} bytes")
        self.place.ok("deploy")
        self.release = self.place.inside("readlink", "-f", f"{self.place.base}/current").strip()

    def diff(self, *words: str) -> tuple[int, list[str]]:
        done = self.place.orch("diff", *words)
        assert done.returncode in (0, 1), said(done)
        assert SECRET not in said(done)
        return done.returncode, done.stdout.decode().splitlines()


@pytest.fixture(scope="module")
def target(real_lab: RealLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    place = Place(real_lab, tmp_path_factory.mktemp("diff"), f"u{next(numbers)}")
    found = Target(place, real_lab)
    interpreter = str(Path(sys.executable).resolve())
    setup = ["sh", "-c", SETUP, "sh", found.root, place.base, interpreter]
    real_lab.host_run(["lxc-attach", "-n", "200", "--clear-env", "--", *setup])
    found.put("site/torch/version.py", TORCH.format("cu128", "12.8", "a" * 40))
    found.put("runtime.json", json.dumps(RUNTIME))
    (place.payload / "foreign.py").unlink()
    (place.payload / "loss.py").write_text("LOSS = 1\n")
    found.git("init", "--quiet", "--initial-branch", "main")
    found.write()
    found.deploy(TRAIN)
    place.ok("launch", "--wait", "end")
    place.ok("runs", "mark", "last", "good", "--note", "warm")
    yield found
    place.clean()


Change = Callable[[Target], Any]


@contextmanager
def changed_on_target(target: Target, script: str) -> Iterator[None]:
    """Root and release are put back as they were, whatever the script did."""
    target.inside('cp -a "$1" "$1.kept"')
    try:
        target.inside(script)
        yield
    finally:
        target.inside('rm -rf "$1" && mv "$1.kept" "$1"')


@contextmanager
def changed_inventory(target: Target, **changes: Any) -> Iterator[None]:
    target.write(**changes)
    yield
    target.write()


@contextmanager
def changed_gpus(target: Target, **state: Any) -> Iterator[None]:
    target.lab.set_gpus(state)
    yield
    target.lab.set_gpus({})


@contextmanager
def changed_config(target: Target, before: str, after: str) -> Iterator[None]:
    """A line of the host's file of the container."""
    target.lab.host_run(["sed", "-i", f"s/^{before}$/{after}/", CONFIG])
    yield
    target.lab.host_run(["sed", "-i", f"s/^{after}$/{before}/", CONFIG])


@contextmanager
def one_cpu(target: Target) -> Iterator[None]:
    """For all that comes in through sshd."""
    pin = [str(Path(sys.executable).resolve()), "-c", PIN]
    target.lab.host_run([*pin, "1"])
    yield
    target.lab.host_run([*pin, str(os.cpu_count())])


def far(script: str) -> Change:
    return lambda target: changed_on_target(target, script)


def written(**changes: Any) -> Change:
    return lambda target: changed_inventory(target, **changes)


def variables(**changes: str) -> Change:
    return lambda target: changed_inventory(target, variables={**target.payload["variables"], **changes})


H100 = {"name": "NVIDIA H100 80GB HBM3"}


# The far side of a connection that is kept open goes on under the sshd that it was made with.
PIN = """\
import os, sys
for name in filter(str.isdigit, os.listdir("/proc")):
    if open(f"/proc/{name}/comm").read().startswith("sshd"):
        os.sched_setaffinity(int(name), range(int(sys.argv[1])))
"""
SWAPPED = TORCH.format("cu130", "13.0", "b" * 40).replace("'", "'\\''").replace("\n", "\\n")
CHANGES: dict[str, tuple[Change, str]] = {
    "file edited in place": (
        far('echo "# hack" >> "$2/train.py"'),
        "edited in place  train.py edited since it was deployed (+1 -0 lines)",
    ),
    "file deleted in place": (far('rm "$2/loss.py"'), "edited in place  loss.py deleted since it was deployed"),
    "file added in place": (far('echo 1 > "$2/new.py"'), "edited in place  new.py was added after the deploy"),
    "expected file edited": (
        far('echo "x = 2" > "$1/dflash_model.py"'),
        "dflash_model.py",
    ),
    "package changed": (
        far('mv "$1/site/requests-2.0.dist-info" "$1/site/requests-2.1.dist-info"'),
        "package  requests 2.0 -> 2.1",
    ),
    "package added": (far('mkdir "$1/site/sglang-0.5.dist-info"'), "package torch uses  sglang 0.5 added"),
    "package removed": (far('rm -r "$1/site/requests-2.0.dist-info"'), "package  requests 2.0 removed"),
    "package editable": (
        far(
            'echo \'{"url": "file:///src", "dir_info": {"editable": true}}\' '
            '> "$1/site/requests-2.0.dist-info/direct_url.json"'
        ),
        "package  requests from editable file:///src (was from an index)",
    ),
    "package rebuilt": (
        far('echo "requests/__init__.py,sha256=y,1" > "$1/site/requests-2.0.dist-info/RECORD"'),
        "package  requests has other files under the same version",
    ),
    "package edited in the environment": (
        far('printf 2 > "$1/site/requests/__init__.py"; touch -d "+9 seconds" "$1/site/requests/__init__.py"'),
        "package edited  requests/__init__.py edited in the environment",
    ),
    ".pth with code": (
        far('echo "import os" > "$1/site/hook.pth"'),
        "package edited  hook.pth edited in the environment",
    ),
    "torch swapped": (
        far(
            f"printf '{SWAPPED}' > \"$1/site/torch/version.py\"; "
            'mv "$1/site/torch-2.11.0+cu128.dist-info" "$1/site/torch-2.11.0+cu130.dist-info"'
        ),
        "torch  2.11.0+cu128 (CUDA 12.8, git aaaaaaaaaaaa) -> 2.11.0+cu130 (CUDA 13.0, git bbbbbbbbbbbb)",
    ),
    "variable": (variables(NCCL_DEBUG="WARN"), "variable  NCCL_DEBUG INFO -> WARN"),
    "secret": (variables(HF_TOKEN=SECRET + "x"), "secret variable  HF_TOKEN has another value (not shown)"),
    "setting": (written(settings={"optimizer.lr": 0.2}), "setting  optimizer.lr 0.1 -> 0.2"),
    "command": (written(command=["python", "train.py", "--fast"]), "python train.py -> python train.py --fast"),
    "topology": (written(topology={"targets": 4, "drafters": 3}), "run  targets 5 -> 4"),
    "data grew": (far('printf bb > "$1/data/b.bin"'), "data  1 files, 4 bytes, content"),
    "data changed": (far('printf aaab > "$1/data/a.bin"'), "data  1 files, 4 bytes, content"),
    "model": (far('printf weighty > "$1/model/w.bin"'), "model  1 files, 7 bytes, content"),
    "environment": (
        lambda target: changed_inventory(target, python=f"{target.place.base}/envs/bbbb/bin/python"),
        "environment  aaaa -> bbbb",
    ),
    "driver": (lambda target: changed_gpus(target, driver="570.10"), "driver  580.95.05 -> 570.10"),
    "GPU model": (
        lambda target: changed_gpus(target, devices=[*[{}] * 7, H100]),
        "GPUs  installed 8 x NVIDIA H200, 143771 MiB -> 7 x NVIDIA H200, 143771 MiB; 1 x NVIDIA H100 80GB HBM3, 143771",
    ),
    "power limit": (lambda target: changed_gpus(target, devices=[{"power.limit": "500.00"}] * 8), "power limit (W)"),
    "container's memory": (
        lambda target: changed_config(target, "memory: 65536", "memory: 32768"),
        "container  memory 65536 -> 32768",
    ),
    "CPUs": (one_cpu, " -> 0"),
    "compile cache lost": (
        far('rm -r "$1/orch/caches/live/inductor"'),
        "compile cache  TORCHINDUCTOR_CACHE_DIR 100000 bytes, 1 files, 0 graphs -> not there",
    ),
}


def test_what_nobody_changed_is_equal_byte_for_byte(target: Target) -> None:
    first, second = (target.place.ok("fingerprint", "--json") for _ in range(2))
    assert first == second and json.loads(first)["unknown"] == {}
    assert SECRET not in first and SECRET[:7] not in first
    code, lines = target.diff("now")
    assert (code, lines[0].rpartition(": ")[2]) == (0, "no difference in what was observed of both"), lines
    assert "(marked good: warm, 21.5 Ktok/s)" in lines[0]
    assert lines[-1].startswith("not observed in B: replaced function, loaded version, torch setting"), lines


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_is_that_difference_and_no_other(target: Target, name: str) -> None:
    change, expected = CHANGES[name]
    with change(target):
        code, lines = target.diff("now")
    assert code == 1 and lines[0].endswith(": 1 difference"), lines
    assert expected in lines[1], lines


RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "torch setting": (
        {
            "compiler_settings": {
                **RUNTIME["compiler_settings"],
                "torch._dynamo.config": {"error_on_nested_fx_trace": False},
            }
        },
        "torch setting  torch._dynamo.config.error_on_nested_fx_trace default -> false",
    ),
    "replaced function": (
        {"replaced_functions": {"torch.fx._symbolic_trace:is_fx_symbolic_tracing": "/root/hack.py:7"}},
        "replaced function  torch.fx._symbolic_trace:is_fx_symbolic_tracing is replaced by /root/hack.py",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_only_a_run_can_tell_is_compared_between_runs(target: Target, name: str) -> None:
    change, expected = RUNS[name]
    target.put("runtime.json", json.dumps({**RUNTIME, **change}))
    target.place.ok("launch", "--wait", "end")
    target.put("runtime.json", json.dumps(RUNTIME))
    code, lines = target.diff()
    assert code == 1 and lines[0].endswith(": 1 difference") and " -> latest " in lines[0], lines
    assert expected in lines[1], lines


def test_lines_that_were_edited_in_place_are_shown_after_they_are_gone(target: Target) -> None:
    with changed_on_target(target, 'echo "# hack" >> "$2/train.py"; echo "x = 2" > "$1/dflash_model.py"'):
        target.place.ok("launch", "--wait", "end")
        target.inside('echo "# other" > "$2/train.py"; echo "x = 3" > "$1/dflash_model.py"')
        code, lines = target.diff("latest", "now")
    assert code == 1 and lines[0].endswith(": 2 differences"), lines
    assert "train.py edited since it was deployed, otherwise than before (+1 -6 lines)" in lines[1], lines
    assert {"  -# hack", "  +# other", "  -x = 2", "  +x = 3"} <= set(lines), lines


def test_another_python_is_that_difference(target: Target) -> None:
    other = target.place.inside(
        "/usr/bin/python3", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    ).strip()
    mine = ".".join(map(str, sys.version_info[:3]))
    if other == mine:
        pytest.skip(f"the machine has no other Python than {mine}")
    with changed_on_target(
        target, 'rm "$1"/orch/envs/aaaa/bin/python && ln -s /usr/bin/python3 "$1"/orch/envs/aaaa/bin/python'
    ):
        code, lines = target.diff("now")
    assert code == 1 and lines[0].endswith(": 1 difference"), lines
    assert f"python  version {mine} -> {other}" in lines[1], lines


def test_another_commit_comes_with_its_lines_and_its_subject(target: Target) -> None:
    first = target.release
    target.deploy(TRAIN.replace("0.5", "0.25"))
    try:
        code, lines = target.diff("now")
        report = json.loads(target.place.orch("diff", "now", "--json").stdout)
    finally:
        target.place.ok("rollback")
        target.release = first
    assert code == 1 and "code  train.py changed; commit " in lines[1] and lines[1].endswith("(1 commit)"), lines
    assert any(line.startswith("  + ") and "Write" in line for line in lines), lines
    assert '  +    print(f"step {step} loss 0.25 21500.0 tok/s", flush=True)' in lines
    assert (report["schema"], report["equal"], len(report["commits"])) == ("orch.diff/1", False, 1)
    assert [file["path"] for file in report["files"]] == ["train.py"]
    assert {one["kind"] for one in report["differences"]} == {"code"}


def test_without_such_a_run_it_says_what_there_is(target: Target) -> None:
    done = target.place.orch("diff", "1999", "now")
    assert done.returncode == 2 and "0 runs begin with '1999'" in said(done)
    assert target.place.orch("runs", "mark", "last", "fine").returncode == 2

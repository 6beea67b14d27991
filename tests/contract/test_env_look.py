"""What is seen in an environment that is wrong in one place, and what is said to do about it."""

import json
import os
import platform
import subprocess
import threading
import time
from pathlib import Path

import pytest

from orchestrator.agent.far import env_libraries, env_look
from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.errors import OpError
from orchestrator.probes.environment import baseline_record, expectation_of_baseline, expectation_of_lock
from orchestrator.probes.environment_check import passes
from orchestrator.probes.environment_finding import ERROR, WARNING
from orchestrator.probes.import_failure import read_import_failure
from tests.local_agent import interpreters
from tests.made_venv import BRINGS, LONG_AGO, MadeVenv
from tests.tiny_elf import shared_object

PROJECT = Path(__file__).resolve().parents[2]
LINKER = pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries are for x86-64")


@pytest.fixture(autouse=True)
def own_login(tmp_path, monkeypatch):
    """No variable, package or library of whoever runs the tests."""
    monkeypatch.setattr(env_libraries, "CACHE", str(tmp_path / "none"))
    for name in env_look.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def venv(tmp_path):
    made = MadeVenv(tmp_path / "venv")
    made.install_torch()
    return made


def kept(venv):
    record = json.loads(json.dumps(baseline_record(venv.look("names"))))
    return expectation_of_baseline("the baseline", record)


def test_a_sound_environment_has_nothing_wrong(venv):
    assert venv.wrong(kept(venv)) == {}
    lock = expectation_of_lock("its lock", {one.name: one.version for one in venv.look("names").packages})
    assert venv.wrong(lock) == {}
    assert venv.look().files.hashed > 20


def test_nothing_of_it_is_imported_or_written(venv, tmp_path):
    (venv.site / "evil.pth").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})\n")
    before = sorted(str(path) for path in venv.prefix.rglob("*"))
    venv.look()
    assert not (tmp_path / "ran").exists()
    assert sorted(str(path) for path in venv.prefix.rglob("*")) == before


def test_what_was_installed_by_hand_is_named(venv):
    expected = kept(venv)
    venv.install("sglang", "0.5.1")
    found = venv.wrong(expected)
    assert list(found) == ["extra sglang"] and found["extra sglang"].severity == ERROR
    assert found["extra sglang"].way_out == f"{venv.python} -m pip uninstall -y sglang"
    assert list(venv.wrong(expected, mode="names")) == ["extra sglang"]
    packages = {key: wanted.version for key, wanted in expected.packages.items()}
    assert venv.wrong(expectation_of_lock("its lock", packages))["extra sglang"].way_out == "orch env sync --rebuild"


def test_a_removed_package_and_another_version(venv):
    expected = kept(venv)
    venv.uninstall(venv.site / "filelock-3.13.1.dist-info")
    venv.uninstall(venv.site / "nvidia_nccl_cu12-2.27.5.dist-info")
    venv.install("nvidia-nccl-cu12", "2.26.2", {"nvidia/nccl/lib/libnccl.so.2": shared_object([])})
    found = venv.wrong(expected)
    assert found["missing filelock"].way_out.endswith("install filelock==3.13.1")
    assert "2.26.2; the baseline has 2.27.5" in found["version nvidia-nccl-cu12"].text
    assert found["requirement nvidia-nccl-cu12"].way_out.endswith("install nvidia-nccl-cu12==2.27.5")


def test_the_same_version_of_another_build(venv):
    expected = kept(venv)
    venv.install("filelock", "3.13.1", {"filelock/__init__.py": "X = 2\n"})
    found = venv.wrong(expected)
    assert list(found) == ["another_build filelock"]


def test_who_installed_it_makes_no_other_build(venv):
    expected = kept(venv)
    venv.install("filelock", "3.13.1", installer="uv")
    assert venv.wrong(expected) == {}


def test_a_file_edited_in_place(venv):
    expected = kept(venv)
    path = venv.site / "filelock" / "__init__.py"
    path.write_text("X = 9\n")  # of the same length
    found = venv.wrong(expected)
    assert list(found) == ["changed filelock"]
    assert "contents are not as installed" in found["changed filelock"].details[0]
    assert found["changed filelock"].way_out.endswith("--force-reinstall --no-deps filelock==3.13.1")
    assert "changed filelock" in venv.wrong(expected, mode="newer")
    # Written with the old time: only hashing tells, and the quick look says that it did not.
    os.utime(path, (LONG_AGO, LONG_AGO))
    quick = venv.wrong(expected, mode="newer")
    assert list(quick) == ["by_age"] and "not written since" in quick["by_age"].text
    assert "changed filelock" in venv.wrong(expected)


def test_byte_code_is_nobodys(venv):
    cache = venv.site / "filelock" / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-312.pyc").write_bytes(b"x")
    (venv.site / "filelock" / "old.pyc").write_bytes(b"x")
    assert venv.wrong(kept(venv)) == {}


def test_what_there_was_no_time_for_is_told(venv):
    facts = venv.look(max_bytes=1000)
    assert facts.files.not_hashed > 0 and facts.files.bytes_hashed <= 1000
    found = venv.wrong(max_bytes=1000)
    assert f"{facts.files.not_hashed} of {facts.files.files} files were not hashed" in found["not_hashed"].text
    assert venv.look(deadline_s=1e-9).files.hashed == 0


@pytest.mark.parametrize(
    "row", [b"a\0.py,sha256=x,1", "a.py,sha256=x,\u00b2".encode(), b"a.py,,%s" % (b"9" * 5000), b'"a.py,,1']
)
def test_a_line_of_a_record_that_is_none_hides_no_other(venv, row):
    info = venv.install("alpha", "1.0")
    with (info / "RECORD").open("ab") as stream:
        stream.write(row + b"\nalpha/gone.py,,1\n")
    found = venv.wrong(None)
    assert found["gone alpha"].details == (str(venv.site / "alpha/gone.py"),)
    assert "1 lines of its RECORD cannot be read" in found["no_record alpha"].text


def test_nothing_of_it_makes_a_look_wait(venv):
    """A FIFO where a file is expected; a device that never ends."""
    infos = [venv.install(name, "1.0") for name in ("alpha", "beta", "gamma")]
    for path in (infos[0] / "METADATA", infos[1] / "RECORD", infos[2] / "direct_url.json", venv.site / "x.pth"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    os.mkfifo(venv.site / "pipe.py")
    with (infos[2] / "RECORD").open("a") as stream:
        stream.write(f"pipe.py,sha256=x,\n{os.path.relpath('/dev/zero', venv.site)},sha256=x,\n")
    found: list[object] = []
    looking = threading.Thread(target=lambda: found.append(venv.wrong(None)), daemon=True)
    looking.start()
    looking.join(20)
    assert found, "it waits for what nobody writes"
    assert "2 of its" in found[0]["changed gamma"].text


def test_a_file_that_is_too_large_for_the_time_is_told(venv):
    info = venv.install("alpha", "1.0")
    with (venv.site / "big.bin").open("wb") as stream:
        stream.truncate(64 << 30)
    with (info / "RECORD").open("a") as stream:
        stream.write(f"big.bin,sha256=x,{64 << 30}\n")
    began = time.monotonic()
    files = venv.look(deadline_s=0.3, max_bytes=1 << 40).files
    assert files.not_hashed >= 1 and time.monotonic() - began < 20


def test_files_that_nobody_brought(venv):
    (venv.site / "torch" / "hack.py").write_text("")
    (venv.site / "loose.py").write_text("")
    (venv.site / "_virtualenv.py").write_text("")
    found = venv.wrong()
    assert found["loose"].text.startswith("2 files") and found["loose"].severity == WARNING


def test_an_editable_install(venv):
    expected = kept(venv)
    info = venv.install("mine", "0.1", {"__editable__.mine-0.1.pth": "/srv/mine\n"})
    (info / "direct_url.json").write_text('{"url": "file:///srv/mine", "dir_info": {"editable": true}}')
    assert "extra mine" in venv.wrong(expected)
    ours = venv.install("orch-train", "0.1", {})
    (ours / "direct_url.json").write_text('{"url": "file:///srv/orch", "dir_info": {"editable": true}}')
    assert "editable orch-train" not in venv.wrong()
    assert "file:///srv/mine" in venv.wrong()["editable mine"].text
    assert "editable mine" not in venv.wrong(kept(venv)), "it was so when the baseline was recorded"
    lock = expectation_of_lock("its lock", {one.name: one.version for one in venv.look("names").packages})
    assert venv.wrong(lock)["editable mine"].severity == ERROR


def test_a_new_pth_file(venv):
    expected = kept(venv)
    (venv.site / "more.pth").write_text("/srv/elsewhere\n")
    assert "more.pth is new" in venv.wrong(expected)["path_file"].text


def test_what_a_cut_off_upgrade_left(venv):
    (venv.site / "~orch").mkdir()
    (venv.site / "~orch-2.7.0.dist-info").mkdir()
    found = venv.wrong()["half_removed torch"]
    assert "torch" in found.way_out and "rm -r" in found.way_out


def test_a_package_that_is_there_twice(venv):
    venv.install("filelock", "3.12.0")
    found = venv.wrong()
    assert "3.12.0" in found["twice filelock"].text and found["twice filelock"].severity == ERROR


def test_what_hides_a_module(venv, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "filelock.py").write_text("")
    (tmp_path / "run" / "queue.py").write_text("")
    (tmp_path / "run" / "train.py").write_text("")
    (tmp_path / "run" / "torch").mkdir()  # without __init__.py it hides nothing
    found = venv.wrong(run_folder=str(tmp_path / "run"))
    assert set(found) == {"shadow filelock", "shadow queue"}
    assert "the standard library's queue" in found["shadow queue"].text


def test_what_the_variables_bring(venv, tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "helper.py").write_text("")
    found = venv.wrong(variables={"PYTHONPATH": f"{tmp_path / 'extra'}:{venv.site}", "LD_PRELOAD": "/x.so"})
    assert set(found) == {"python_path", "variable"}
    assert "helper" in found["python_path"].text


def test_packages_of_the_login_and_of_the_system(venv, tmp_path):
    short = venv.site.parent.name
    user = tmp_path / "home" / ".local" / "lib" / short / "site-packages"
    user.mkdir(parents=True)
    venv.install("filelock", "3.0.0", site=user)
    assert venv.wrong() == {}, "an environment of its own sees neither"
    config = (venv.prefix / "pyvenv.cfg").read_text()
    (venv.prefix / "pyvenv.cfg").write_text(config.replace("packages = false", "packages = true"))
    found = venv.wrong(mode="names")
    assert {"user_site", "system_site", "twice filelock"} <= set(found)
    assert venv.look("names").used()["filelock"].version == "3.0.0"
    assert "user_site" not in venv.wrong(mode="names", variables={"PYTHONNOUSERSITE": "1"})


def test_whether_torch_is_there_is_said_by_files_and_only_where_they_can_say_it(venv, tmp_path):
    assert venv.look("names").holds_torch() is True
    for info in venv.site.glob("torch-*"):
        venv.uninstall(info)
    assert venv.look("names").holds_torch() is False
    (venv.site / "hook.pth").write_text("import _hook\n# a note\n")
    assert venv.look("names").holds_torch() is False
    (venv.site / "shared.pth").write_text("/opt/shared/packages\n")
    assert venv.look("names").holds_torch() is None, "that folder may hold it"
    (venv.site / "torch").mkdir(exist_ok=True)
    (venv.site / "torch/version.py").write_text("__version__ = '2.11.0'\n")
    assert venv.look("names").holds_torch() is True, "put there by no installer"


def test_torch_from_a_folder_of_pythonpath_is_found(venv, tmp_path):
    for info in venv.site.glob("torch-*"):
        venv.uninstall(info)
    (tmp_path / "more/torch").mkdir(parents=True)
    look = {"mode": "names", "variables": {"PYTHONPATH": str(tmp_path / "more")}}
    assert venv.look(**look).holds_torch() is False, "an empty folder is no module"
    (tmp_path / "more/torch/__init__.py").touch()
    assert venv.look(**look).holds_torch() is True
    for number in range(60):
        (tmp_path / f"more/a{number}.py").touch()
    assert venv.look(**look).holds_torch() is None, "not all of a crowded folder is told"


def test_builds_for_another_machine(venv):
    venv.install("newer", "1.0", tag="cp312-abi3-manylinux_2_99_x86_64")
    venv.install("older", "1.0", tag="cp38-cp38-manylinux_2_17_x86_64")
    found = venv.wrong()
    assert "glibc 2.99" in found["glibc newer"].text
    assert "Python 3.8" in found["another_python older"].text
    assert "another_python newer" not in found


@LINKER
def test_removing_suspects_broke_the_import_and_each_cure_is_named(venv):
    """cu13 packages came in, over the files of the cu12 ones, and were removed by suspicion."""
    foreign = [
        venv.install(name.replace("cu12", "cu13"), "99.0", {f"{folder}/{soname}": shared_object([], soname=soname)})
        for soname, (name, _, folder) in list(BRINGS.items())[:3]
    ]
    assert venv.run("import torch").returncode == 0
    found = venv.wrong()
    told = found["foreign_cuda nvidia-cudnn-cu13"]
    assert told.severity == ERROR and "lie over those of nvidia-cudnn-cu12, which torch needs" in told.text
    assert told.way_out.endswith("--force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21")
    assert "nothing requires it" in told.text

    for info in foreign:
        venv.uninstall(info)
    found = venv.wrong()
    for soname, (name, version, folder) in list(BRINGS.items())[:3]:
        failed = venv.run("import torch")
        assert failed.returncode == 1
        read = read_import_failure("torch 2.11.0+cu128\n" + failed.stderr)
        assert [(one.library, one.package) for one in read.missing] == [(soname, name)]
        assert read.torch_importable is False
        lacking = found[f"library {name}"]
        assert lacking.text.startswith(f"{soname}, which libtorch_cuda.so loads, is missing: {name}=={version}")
        assert lacking.way_out == f"{venv.python} -m pip install --force-reinstall --no-deps {name}=={version}"
        assert f"gone {name}" in found
        venv.install(name, version, {f"{folder}/{soname}": shared_object(["libc.so.6"], soname=soname)})
    assert venv.run("import torch").returncode == 0
    assert venv.wrong() == {}


@LINKER
def test_a_package_that_torch_needs_and_is_not_there(venv):
    venv.uninstall(venv.site / "nvidia_nccl_cu12-2.27.5.dist-info")
    assert "libnccl.so.2: cannot open shared object file" in venv.run("import torch").stderr
    found = venv.wrong()
    assert "which is not installed" in found["library nvidia-nccl-cu12"].text
    assert found["library nvidia-nccl-cu12"].way_out.endswith("pip install nvidia-nccl-cu12==2.27.5")
    assert "requirement nvidia-nccl-cu12" not in found, "told once"
    quick = venv.wrong(mode="names")
    assert "torch 2.11.0+cu128 needs nvidia-nccl-cu12==2.27.5" in quick["requirement nvidia-nccl-cu12"].text


def test_a_toolkit_that_torch_requires_brings_what_belongs(tmp_path):
    venv = MadeVenv(tmp_path / "venv")
    requires = ["cuda-toolkit[cudart,nvtx]==13.0.2 ; platform_system == 'Linux'"]
    files = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"}
    library = shared_object(["libcudart.so.13"], soname="libtorch_cuda.so", rpath="$ORIGIN")
    venv.install("torch", "2.11.0+cu130", {**files, "torch/lib/libtorch_cuda.so": library}, requires=requires)
    inner = ["nvidia-cuda-runtime==13.0.96.* ; extra == 'cudart'", "nvidia-nvtx==13.0.85 ; extra == 'nvtx'"]
    venv.install("cuda-toolkit", "13.0.2", {}, requires=[*inner, "nvidia-cublas==13.1 ; extra == 'cublas'"])
    venv.install("nvidia-nvtx", "13.0.85", {"nvidia/cu13/lib/libnvtx.so": b"x"})
    venv.install("nvidia-cublas-cu12", "12.8.4", {"nvidia/cublas/lib/libcublas.so.12": b"x"})
    found = venv.wrong()
    assert "nvidia-cuda-runtime==13.0.96.* provides it" in found["library nvidia-cuda-runtime"].text
    assert found["foreign_cuda nvidia-cublas-cu12"].severity == WARNING
    assert set(found) == {"library nvidia-cuda-runtime", "foreign_cuda nvidia-cublas-cu12"}


def test_libraries_are_looked_for_in_the_linkers_order(tmp_path):
    """RPATH, unless there is a RUNPATH; LD_LIBRARY_PATH before a RUNPATH and after an RPATH."""
    site, other = tmp_path / "site", tmp_path / "other"
    for folder in (site / "torch" / "lib", site / "deps", other):
        folder.mkdir(parents=True)
    for folder in (site / "deps", other):
        (folder / "libone.so.1").write_bytes(shared_object([]))
    library = site / "torch" / "lib" / "libtorch_cuda.so"

    def found(library_path="", **said):
        library.write_bytes(shared_object(["libone.so.1"], **said))
        seen = env_libraries.torch_libraries(str(site / "torch"), [str(site)], library_path)
        return seen["needed"]["libone.so.1"]["path"]

    deps, elsewhere = str(site / "deps" / "libone.so.1"), str(other / "libone.so.1")
    assert found() is None
    assert found(rpath="$ORIGIN/../../deps") == found(runpath="${ORIGIN}/../../deps") == deps
    assert found(rpath="$ORIGIN/../../deps", runpath="/none") is None
    assert found(str(other), rpath="$ORIGIN/../../deps") == deps
    assert found(str(other), runpath="$ORIGIN/../../deps") == elsewhere


def test_another_copy_on_the_library_path(venv, tmp_path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "libnccl.so.2").write_bytes(b"")
    found = venv.wrong(variables={"LD_LIBRARY_PATH": str(tmp_path / "cuda")})
    assert "another libnccl.so.2" in found["library_path"].text


def test_a_driver_older_than_the_build(venv, monkeypatch):
    monkeypatch.setattr(env_look, "_machine", lambda: {"libc": None, "architecture": "x86_64", "driver": "470.82.01"})
    found = venv.wrong()
    assert "470.82.01" in found["driver"].text and "525 or newer" in found["driver"].text
    monkeypatch.setattr(env_look, "_machine", lambda: {"libc": None, "architecture": "x86_64", "driver": "525.60"})
    assert venv.wrong() == {}


def test_a_python_that_is_none_is_asked_or_refused(tmp_path):
    with pytest.raises(OpError, match="there is no"):
        env_look.env_look({"python": str(tmp_path / "none"), "mode": "names"}, b"", Channel(1, lambda h, b: None))
    odd = tmp_path / "odd"
    odd.write_text("#!/bin/sh\necho something\n")
    odd.chmod(0o755)
    with pytest.raises(OpError, match="does not say"):
        env_look.env_look({"python": str(odd), "mode": "names"}, b"", Channel(1, lambda h, b: None))


def test_the_python_that_it_was_made_with_may_be_gone(venv):
    (venv.prefix / "pyvenv.cfg").write_text(
        f"home = /nowhere\nversion = {venv.version}\ninclude-system-site-packages = true\n"
    )
    facts = venv.look("names")
    assert facts.system_site and facts.sites == (str(venv.site),)


def test_an_interpreter_without_pyvenv_cfg_is_asked(venv):
    (venv.prefix / "pyvenv.cfg").unlink()
    facts = venv.look("names")
    assert facts.version == venv.version and facts.sites


def test_only_names_are_quick_in_a_large_environment(tmp_path):
    venv = MadeVenv(tmp_path / "venv")
    for number in range(300):
        venv.install(f"package{number}", "1.0")
    began = time.process_time()
    assert len(venv.look("names").packages) == 300
    assert time.process_time() - began < 1.0


def test_what_ldconfig_knows_counts_as_provided(venv, tmp_path, monkeypatch):
    """/etc/ld.so.cache of this machine: another library under the name of one that it knows."""
    known = env_libraries.read_cache("/etc/ld.so.cache")
    assert os.path.exists(known["libc.so.6"])
    assert env_libraries.read_cache(str(venv.python)) == {}
    venv.uninstall(venv.site / "nvidia_nccl_cu12-2.27.5.dist-info")
    assert "library nvidia-nccl-cu12" in venv.wrong()
    monkeypatch.setattr(env_libraries, "read_cache", lambda path: {"libnccl.so.2": known["libc.so.6"]})
    assert "library nvidia-nccl-cu12" not in venv.wrong()


AS_AGENT = """
import json, sys
from orchestrator.agent.far import env_look
from orchestrator.agent.far.channel import Channel
answer = env_look.env_look({"python": sys.argv[1], "mode": "all"}, b"", Channel(1, lambda header, body: None))
answer.pop("took_s")
print(json.dumps(answer, sort_keys=True))
"""


def test_every_python_that_an_agent_runs_on_sees_the_same(venv):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(PROJECT)}
    told = set()
    for python in interpreters():
        argv = [python, "-c", AS_AGENT, str(venv.python)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        told.add(done.stdout.replace(str(PROJECT), "."))
    assert len(told) == 1


def test_the_verdict_is_of_errors_only(venv):
    (venv.site / "loose.py").write_text("")
    assert passes(venv.wrong().values())
    (venv.site / "filelock" / "__init__.py").unlink()
    assert not passes(venv.wrong().values())

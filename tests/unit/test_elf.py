"""The reader of the dynamic section: against files made for it, against the machine's own, and against noise."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.agent.far.elf import ElfError, read_dynamic
from tests.tiny_elf import shared_object

NAMES = st.lists(st.text("abcdefgh.+-_0123456789", min_size=1, max_size=20), max_size=8)
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@given(needed=NAMES, wide=st.booleans(), big_endian=st.booleans(), soname=st.sampled_from(["", "libme.so.1"]))
def test_what_was_put_in_comes_out(
    tmp_path: Path, needed: list[str], wide: bool, big_endian: bool, soname: str
) -> None:
    file = tmp_path / "x.so"
    made = shared_object(needed, soname=soname, rpath="$ORIGIN:/a", runpath="/b", wide=wide, big_endian=big_endian)
    file.write_bytes(made)
    found = read_dynamic(str(file))
    assert (found["needed"], found["soname"]) == (needed, soname or None)
    assert (found["rpath"], found["runpath"]) == (["$ORIGIN", "/a"], ["/b"])


@QUIET
@given(cut=st.integers(0, 400), place=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_broken_file_is_an_elf_error_or_read(tmp_path: Path, cut: int, place: int, byte: int) -> None:
    data = bytearray(shared_object(["libcudnn.so.9"], soname="libx.so"))
    data[place % len(data)] = byte
    file = tmp_path / "x.so"
    file.write_bytes(bytes(data[: len(data) - cut % len(data)]))
    with contextlib.suppress(ElfError):
        read_dynamic(str(file))


@QUIET
@given(st.binary(max_size=300))
def test_noise_is_no_elf_file(tmp_path: Path, noise: bytes) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(b"\x7fELF\x02\x01" + noise)
    with pytest.raises(ElfError):
        read_dynamic(str(file))
    file.write_bytes(noise)
    with pytest.raises(ElfError):
        read_dynamic(str(file))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.so")
    with pytest.raises(ElfError):
        read_dynamic(str(tmp_path / "x.so"))


def test_the_machines_own_modules_need_the_c_library() -> None:
    found = sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("_*.so"))
    assert found, "this Python has no extension modules"
    assert any("libc.so.6" in read_dynamic(str(path))["needed"] for path in found)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the file is for x86-64")
def test_the_linker_takes_such_a_file_and_says_what_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "libtorch_cuda.so"
    file.write_bytes(shared_object(["libcudnn.so.999"]))
    with pytest.raises(OSError, match=r"libcudnn\.so\.999: cannot open shared object file"):
        ctypes.CDLL(str(file))

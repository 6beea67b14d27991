"""Which package provides what an import lacked, beyond the cases of tests/data/read/import (test_read_cases.py)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.probes.import_failure import cuda_major_in, read_import_failure
from orchestrator.probes.libraries import (
    cuda_of_package,
    is_nvidia_library,
    is_torch_symbol,
    major_of,
    package_of_file,
    provider,
    readable,
    toolkit_packages,
)
from tests.reading import unplaced

DATA = Path(__file__).resolve().parents[1] / "data" / "read" / "import"


@pytest.mark.parametrize(
    ("library", "cuda", "package"),
    [
        ("libcudnn.so.9", 12, "nvidia-cudnn-cu12"),
        ("libcudnn.so.9", 13, "nvidia-cudnn-cu13"),
        ("libcudnn_engines_precompiled.so.9", 13, "nvidia-cudnn-cu13"),
        ("libcusparseLt.so.0", 12, "nvidia-cusparselt-cu12"),
        ("libcusparseLt.so.0", 13, "nvidia-cusparselt-cu13"),
        ("libnccl.so.2", 12, "nvidia-nccl-cu12"),
        ("libnccl.so.2", 13, "nvidia-nccl-cu13"),
        ("libnvshmem_host.so.3", 13, "nvidia-nvshmem-cu13"),
        # the number in the name says more than the torch that somebody guessed
        ("libcudart.so.12", 13, "nvidia-cuda-runtime-cu12"),
        ("libcudart.so.13", None, "nvidia-cuda-runtime"),
        ("libcublasLt.so.12", None, "nvidia-cublas-cu12"),
        ("libcusolver.so.11", None, "nvidia-cusolver-cu12"),
        ("libcusolver.so.12", None, "nvidia-cusolver"),
        ("libcusparse.so.12", 13, "nvidia-cusparse"),
        ("libcufft.so.11", None, "nvidia-cufft-cu12"),
        ("libcurand.so.10", 13, "nvidia-curand"),
        ("/usr/lib/x86_64-linux-gnu/libGL.so.1", None, "libgl1"),
        ("libcuda.so.1", 12, "nvidia driver"),
        ("libc10_cuda.so", None, "torch"),
        ("libcudart-d0da41ae.so.11.0", None, "torch"),
    ],
)
def test_who_provides_a_library(library: str, cuda: int | None, package: str) -> None:
    found = provider(library, cuda)
    assert found is not None and found.package == package


@pytest.mark.parametrize("library", ["libnobody.so.1", "notalib", "libcudnn", ""])
def test_nobody_is_known(library: str) -> None:
    assert provider(library) is None


def test_the_major_is_told_only_by_names_that_tell_it() -> None:
    assert (major_of("libcudart.so.12"), major_of("libnvrtc.so.13")) == (12, 13)
    assert major_of("libcudnn.so.9") is major_of("libcusparse.so.12") is major_of("libcurand.so.10") is None


def test_what_the_toolkit_of_a_torch_brings() -> None:
    assert toolkit_packages(["cudart", "nvtx", "later"], "12.8.1") == ["nvidia-cuda-runtime-cu12", "nvidia-nvtx-cu12"]
    assert toolkit_packages(["cudart", "nvtx"], "13.0.2") == ["nvidia-cuda-runtime", "nvidia-nvtx"]


def test_names_of_packages() -> None:
    assert [cuda_of_package(name) for name in ("nvidia-nccl-cu13", "cupy-cuda12x", "nvidia-cublas")] == [13, 12, None]
    assert is_nvidia_library("nvidia-cublas") and is_nvidia_library("nvidia-cudnn-cu13")
    assert not is_nvidia_library("nvidia-ml-py") and not is_nvidia_library("tensorrt")


@pytest.mark.parametrize(
    ("path", "package"),
    [
        (
            "/v/lib/python3.12/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12",
            "nvidia-cusparse-cu12",
        ),
        ("/usr/lib/python3/dist-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so", "flash-attn"),
        ("/v/lib/python3.12/site-packages/torchvision/_C.so", "torchvision"),
        ("/v/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-ff651d7f.so", "numpy"),
        ("/usr/lib/libfoo.so", None),
        ("/v/site-packages/../..", None),
    ],
)
def test_whose_file_it_is(path: str, package: str | None) -> None:
    assert package_of_file(path) == package


def test_names_in_symbols() -> None:
    assert readable("_ZN3c105ErrorC2ENS_14SourceLocationE") == "c10::Error::Error"
    assert readable("_ZNK5torch8autograd4Node4nameEv") == "torch::autograd::Node::name"
    assert readable("ncclCommRegister") == "ncclCommRegister"
    assert is_torch_symbol("_ZTVN3c1013TensorImplE") and is_torch_symbol("_ZN2at4_ops5zeros4callE")
    assert not is_torch_symbol("_ZN3fooC2Ev") and not is_torch_symbol("ncclCommRegister")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("torch 2.11.0+cu128", 12),
        ("nvidia-nccl-cu13", 13),
        ("torch+cu128 and nvidia-cudnn-cu13", None),
        ("libcudart.so.12: ...", 12),
        ("/usr/lib/python3.9/x", 12),
        ("/usr/lib/python3.12/x", None),
        ("libcu10.so, circular", None),
    ],
)
def test_the_cuda_that_a_text_gives_away(text: str, major: int | None) -> None:
    assert cuda_major_in(text) == major


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.txt")))
def test_what_stands_around_changes_nothing(name: str) -> None:
    text = (DATA / name).read_text("utf-8")
    plain = read_import_failure(text)
    around = "Loading checkpoint\r\n" + text.rstrip("\n").replace("\n", "\r\n") + "\r\nroot@ct200:~# \r\n"
    found = read_import_failure(around)
    assert [finding.meaning for finding in found.findings] == [finding.meaning for finding in plain.findings]
    assert found.missing == plain.missing


def test_a_rank_before_each_line_changes_nothing() -> None:
    text = (DATA / "01-libcusparselt.txt").read_text("utf-8")
    ranks = "".join(f"[rank0]: {line}\n" for line in text.splitlines())
    assert read_import_failure(ranks).missing == read_import_failure(text).missing
    assert [finding.kind for finding in read_import_failure(ranks).findings] == ["library_missing"]


def test_the_wrapper_is_never_the_cause() -> None:
    found = read_import_failure((DATA / "07-transformers-look-up-wrapper.txt").read_text("utf-8"))
    assert found.cause is not None and found.cause.named["package"].value == "flash-attn"
    assert [finding.role for finding in found.findings] == ["wrapper", "cause"]


def test_a_long_line_is_cheap() -> None:
    began = time.process_time()
    for word in ("a" * 4096, "a.so" * 1000, "/a.so." * 700, "lib-" * 1000 + ": ", "version `" * 400):
        read_import_failure(f"{word}\n" * 20)
    assert time.process_time() - began < 2


WORDS = st.sampled_from(
    [
        *(
            "ImportError",
            "OSError",
            ":",
            " ",
            "\n",
            "lib",
            "libcudnn.so.9",
            "/a/site-packages/torch/lib/x.so",
            "(",
            ")",
        ),
        *(
            "cannot open shared object file",
            "undefined symbol",
            "_ZN3c10",
            "version",
            "`GLIBC_2.3'",
            "not found",
            "'a'",
        ),
        *("No module named", "cannot import name", "from", "Traceback (most recent call last):", '  File "x", line 1'),
        *("=> not found", "has no attribute", "module", "\r", "\x1b[1m", "\u2588"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=30))
def test_it_reads_anything(words: list[str]) -> None:
    text = "".join(words)
    assert unplaced(read_import_failure(text), text) == []

"""Which package provides a shared library, for which build of torch.

Rule: pure. What torch's own METADATA requires is the truth; this table tells which of its requirements brings a file,
and stands in where there is no METADATA. NVIDIA's packages of CUDA 11 and 12 end in -cu11 and -cu12; from CUDA 13 on
those of the toolkit have no ending, while cudnn, cusparselt, nccl and nvshmem, with versions of their own, keep one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOOLKIT = {
    "cudart": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "nvblas": "nvidia-cublas",
    "cufft": "nvidia-cufft",
    "cufftw": "nvidia-cufft",
    "curand": "nvidia-curand",
    "cusolver": "nvidia-cusolver",
    "cusolverMg": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "nvJitLink": "nvidia-nvjitlink",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvrtc-builtins": "nvidia-cuda-nvrtc",
    "cupti": "nvidia-cuda-cupti",
    "nvToolsExt": "nvidia-nvtx",
    "nvtx3interop": "nvidia-nvtx",
    "cufile": "nvidia-cufile",
    "cufile_rdma": "nvidia-cufile",
    "nvjpeg": "nvidia-nvjpeg",
    "npp": "nvidia-npp",
}
_OWN_VERSIONS = {
    "cudnn": "nvidia-cudnn",
    "cusparseLt": "nvidia-cusparselt",
    "nccl": "nvidia-nccl",
    "nvshmem_host": "nvidia-nvshmem",
    "cutensor": "cutensor",
    "nvinfer": "tensorrt",
}
KEEPS_ENDING = frozenset(_OWN_VERSIONS.values())
_DRIVER = {"cuda", "nvidia-ml", "nvidia-ptxjitcompiler", "nvcuvid", "nvidia-encode", "nvoptix"}
_OTHER = (
    (r"torch\w*|c10(?:_\w+)?|shm|caffe2\w*", "torch"),
    (r"iomp5", "intel-openmp"),
    (r"mkl_\w+", "mkl"),
    (r"tbb\w*", "tbb"),
    (r"triton\w*", "triton"),
    (r"tensorflow\w*", "tensorflow"),
    (r"bitsandbytes\w*", "bitsandbytes"),
    (r"arrow\w*|parquet", "pyarrow"),
)
_SYSTEM = (
    (r"libGL\.so\.1", "libgl1"),
    (r"libEGL\.so\.1", "libegl1"),
    (r"lib(?:glib|gthread|gobject)-2\.0\.so\.0", "libglib2.0-0"),
    (r"libSM\.so\.6", "libsm6"),
    (r"libXext\.so\.6", "libxext6"),
    (r"libXrender\.so\.1", "libxrender1"),
    (r"libgomp\.so\.1", "libgomp1"),
    (r"libstdc\+\+\.so\.6", "libstdc++6"),
    (r"libgcc_s\.so\.1", "libgcc-s1"),
    (r"libopenblas\.so\.0", "libopenblas0"),
    (r"libgfortran\.so\.5", "libgfortran5"),
    (r"libnuma\.so\.1", "libnuma1"),
    (r"libsndfile\.so\.1", "libsndfile1"),
    (r"libavutil\.so\.\d+|libavcodec\.so\.\d+|libavformat\.so\.\d+", "ffmpeg"),
    (r"libibverbs\.so\.1", "libibverbs1"),
    (r"librdmacm\.so\.1", "librdmacm1"),
    (r"libmpi\.so\.\d+", "openmpi-bin"),
    (r"libffi\.so\.\d+", "libffi8"),
    (r"libpython(3\.\d+)m?\.so\.1\.0", r"libpython\1"),
    (r"libcrypt\.so\.1", "libcrypt1"),
    (r"libaio\.so\.1", "libaio1"),
)
_MAJORS: dict[str, dict[str, int | None]] = {
    # soname number -> CUDA major, where the two are not the same
    "cusolver": {"11": 12, "12": 13},
    "cusolverMg": {"11": 12, "12": 13},
    "cufft": {"10": 11, "11": 12, "12": 13},
    "cufftw": {"10": 11, "11": 12, "12": 13},
    "cusparse": {"11": 11, "12": None},
    "curand": {"10": None},
    "cufile": {"0": None},
    "cufile_rdma": {"1": None},
    "nvToolsExt": {"1": None},
    "nvtx3interop": {"1": None},
}


@dataclass(frozen=True)
class Provider:
    kind: str
    """wheel (pip installs it), bundled (lies in the wheel that loads it, under a name of its own), driver (comes with
    the NVIDIA driver), system (apt installs it on Debian and Ubuntu)."""
    package: str
    cuda_major: int | None = None
    """Known from the file's name, or told by whoever asked."""


def provider(soname: str, cuda_major: int | None = None) -> Provider | None:
    """soname: `libcudnn.so.9`, a path to one, or a part of cuDNN (`libcudnn_ops.so.9`). cuda_major: of the torch that
    loads it, for a name that does not tell; None: CUDA 12 is taken. None: nobody known."""
    file = soname.rsplit("/", 1)[-1]
    if re.fullmatch(r"lib.+-[0-9a-f]{8}\.so[.\d]*", file):
        return Provider("bundled", "torch")
    match = re.fullmatch(r"lib(?P<stem>.+?)\.so(?:\.[\d.]+)?", file)
    if match is None:
        return None
    stem = match["stem"]
    if stem in _DRIVER or stem.startswith("nvidia-"):
        return Provider("driver", "nvidia driver")
    for pattern, package in _SYSTEM:
        if found := re.fullmatch(pattern, file):
            return Provider("system", found.expand(package))
    family = _family(stem)
    if family is not None:
        name, base = family
        major = major_of(soname) or cuda_major
        return Provider("wheel", wheel_name(base, name in _OWN_VERSIONS, major or 12), major)
    for pattern, package in _OTHER:
        if re.fullmatch(pattern, stem):
            return Provider("wheel", package)
    return None


def major_of(soname: str) -> int | None:
    """The CUDA major that a library belongs to, as far as its name tells."""
    match = re.fullmatch(r"lib(?P<stem>.+?)\.so\.(?P<number>\d+)[\d.]*", soname.rsplit("/", 1)[-1])
    family = _family(match["stem"]) if match else None
    if match is None or family is None or family[0] in _OWN_VERSIONS:
        return None
    known = _MAJORS.get(family[0])
    if known is not None:
        return known.get(match["number"])
    major = int(match["number"])
    return major if 9 <= major <= 99 else None


def wheel_name(base: str, own_version: bool, cuda_major: int) -> str:
    if cuda_major >= 13 and not own_version:
        return base
    return f"{base}-cu{cuda_major}"


def cuda_of_package(name: str) -> int | None:
    """The CUDA major in a package's name: nvidia-nccl-cu13 -> 13, cupy-cuda12x -> 12. None: it does not tell."""
    match = re.search(r"-cu(?:da)?(\d{2})x?(?:\d)?$", name)
    return int(match[1]) if match else None


def package_base(name: str) -> str:
    """nvidia-cudnn-cu13 -> nvidia-cudnn."""
    return re.sub(r"-cu\d+$", "", name)


def is_nvidia_library(name: str) -> bool:
    """Whether a package is one of CUDA's libraries (and not a tool like nvidia-ml-py)."""
    return package_base(name) in {*_TOOLKIT.values(), *_OWN_VERSIONS.values()} and name.startswith("nvidia-")


TOOLKIT_EXTRAS = {
    "nvrtc": "nvidia-cuda-nvrtc",
    "cudart": "nvidia-cuda-runtime",
    "cupti": "nvidia-cuda-cupti",
    "cufft": "nvidia-cufft",
    "curand": "nvidia-curand",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "cublas": "nvidia-cublas",
    "cufile": "nvidia-cufile",
    "nvjitlink": "nvidia-nvjitlink",
    "nvtx": "nvidia-nvtx",
    "nvcc": "nvidia-cuda-nvcc",
    "cccl": "nvidia-cuda-cccl",
    "npp": "nvidia-npp",
    "nvjpeg": "nvidia-nvjpeg",
}


def toolkit_packages(extras: Sequence[str], version: str) -> list[str]:
    """What `cuda-toolkit[cudart,...]==12.8.1`, which torch requires from 2.11 on, brings."""
    found = re.match(r"\d+", version)
    major = int(found[0]) if found else 12
    bases = [TOOLKIT_EXTRAS[extra] for extra in extras if extra in TOOLKIT_EXTRAS]
    return [wheel_name(base, False, major) for base in bases]


def _family(stem: str) -> tuple[str, str] | None:
    """(name in the tables, package without its ending)."""
    for table in (_OWN_VERSIONS, _TOOLKIT):
        if stem in table:
            return stem, table[stem]
    if stem.startswith("cudnn_"):  # libcudnn_ops, libcudnn_cnn_infer, libcudnn_graph, ...
        return "cudnn", _OWN_VERSIONS["cudnn"]
    if stem.startswith("nvshmem_"):
        return "nvshmem_host", _OWN_VERSIONS["nvshmem_host"]
    if re.fullmatch(r"npp[a-z]{1,4}", stem):
        return "npp", _TOOLKIT["npp"]
    return None


SYMBOL_OWNERS: tuple[tuple[str, str], ...] = (
    (r"_*nccl[A-Z]\w*", "libnccl.so.2"),
    (r"_*nvJitLink\w*", "libnvJitLink.so"),
    (r"cudnn[A-Z]\w*", "libcudnn.so"),
    (r"cublasLt\w*", "libcublasLt.so"),
    (r"cublas\w*", "libcublas.so"),
    (r"cusparseLt\w*", "libcusparseLt.so.0"),
    (r"cusparse\w*", "libcusparse.so"),
    (r"cusolver\w*", "libcusolver.so"),
    (r"cufft\w*", "libcufft.so"),
    (r"curand\w*", "libcurand.so"),
    (r"nvrtc\w*", "libnvrtc.so"),
    (r"cupti\w*", "libcupti.so"),
    (r"nvshmem\w*", "libnvshmem_host.so.3"),
    (r"_*cuda[A-Z]\w*", "libcudart.so"),
    (r"cu[A-Z]\w*", "libcuda.so.1"),
    (r"nvml\w*", "libnvidia-ml.so.1"),
    (r"iJIT_\w+|mkl_\w+|MKL_\w+", "libmkl_core.so"),
    (r"__kmpc_\w+|omp_\w+|GOMP_\w+", "libgomp.so.1"),
)


def library_of_symbol(symbol: str) -> str | None:
    """The library that a symbol of C should come from."""
    return next((library for pattern, library in SYMBOL_OWNERS if re.fullmatch(pattern, symbol)), None)


def is_torch_symbol(symbol: str) -> bool:
    """A mangled name of c10, at, torch or caffe2: what is missing of torch itself."""
    return bool(re.match(r"_Z(?:TI|TV|TS|GV)?N?[KVrRO]*(?:3c10|2at|5torch|6caffe2)", symbol)) or "3c10" in symbol


def readable(symbol: str) -> str:
    """`_ZN3c105ErrorC2E...` -> c10::Error::Error. What cannot be taken apart stays."""
    match = re.match(r"_Z(?:TI|TV|TS|GV)?N[KVrRO]*", symbol)
    if match is None:
        return symbol
    names, at = [], match.end()
    while found := re.match(r"(\d{1,3})|St|C[123]|D[012]", symbol[at:]):
        if found[1] is not None:
            at += len(found[1])
            names.append(symbol[at : at + int(found[1])])
            at += int(found[1])
            continue
        at += len(found[0])
        if found[0] == "St":
            names.append("std")
        elif names:
            names.append(("~" if found[0][0] == "D" else "") + names[-1])
    return "::".join(names) or symbol


EXTENSIONS = {
    "flash_attn_2_cuda": "flash-attn",
    "flash_attn_3_cuda": "flash-attn",
    "flash_attn_cuda": "flash-attn",
    "selective_scan_cuda": "mamba-ssm",
    "causal_conv1d_cuda": "causal-conv1d",
    "fused_layer_norm_cuda": "apex",
    "amp_C": "apex",
    "apex_C": "apex",
    "exllamav2_ext": "exllamav2",
    "exllama_kernels": "auto-gptq",
    "awq_ext": "autoawq-kernels",
    "deep_ep_cpp": "deep-ep",
    "deep_gemm_cpp": "deep-gemm",
    "fused_weight_gradient_mlp_cuda": "apex",
    "cv2": "opencv-python",
    "_cffi_backend": "cffi",
    "_yaml": "pyyaml",
    "sgl_kernel": "sgl-kernel",
    "flashinfer": "flashinfer-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "attr": "attrs",
    "google.protobuf": "protobuf",
    "huggingface_hub": "huggingface-hub",
    "pynvml": "nvidia-ml-py",
    "pkg_resources": "setuptools",
    "distutils": "setuptools",
    "torch._C": "torch",
    "flash_attn": "flash-attn",
    "mamba_ssm": "mamba-ssm",
    "transformer_engine": "transformer-engine",
    "faiss": "faiss-cpu",
    "OpenSSL": "pyopenssl",
    "Crypto": "pycryptodome",
    "jwt": "pyjwt",
    "serial": "pyserial",
    "usb": "pyusb",
    "magic": "python-magic",
    "umap": "umap-learn",
    "pytorch_lightning": "pytorch-lightning",
    "lightning_fabric": "lightning-fabric",
    "cupy": "cupy-cuda12x",
    "tensorrt": "tensorrt",
    "vllm": "vllm",
}
"""Module -> package, where the two names differ or the module stands alone in site-packages."""


def package_of_module(module: str) -> str:
    """A guess for those that are not in the table: the module's own name."""
    for known in (module, module.split(".")[0]):
        if known in EXTENSIONS:
            return EXTENSIONS[known]
    return re.sub(r"[-_.]+", "-", module.split(".")[0]).lower()


def package_of_file(path: str) -> str | None:
    """Of a shared object below site-packages or dist-packages. None: it lies elsewhere."""
    match = re.search(r"/(?:site|dist)-packages/(.+)$", path)
    if match is None:
        return None
    # torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12
    parts: list[str] = []
    for part in match[1].split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part != "..":
            parts.append(part)
    if not parts:
        return None
    if parts[0] == "nvidia":
        known = provider(parts[-1])
        return known.package if known else None
    if egg := re.match(r"([\w.-]+?)-\d[\w.+-]*\.egg$", parts[0]):
        return egg[1].replace("_", "-").lower()
    top = re.sub(r"\.libs$", "", parts[0]).split(".")[0]
    return package_of_module(top)

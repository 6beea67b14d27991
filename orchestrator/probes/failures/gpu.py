"""Failures of GPUs and their memory, as torch, CUDA and the driver print them."""

from __future__ import annotations

from orchestrator.probes.failures.signature import Signature, signature

_SIZE = r"[\d.,]{1,20} ?(?:[KMGT]i?B|bytes?)"
_OOM_WORDS = (
    rf"(?:tried|trying) to allocate (?P<tried_bytes>{_SIZE})",
    r"\bGPU (?P<gpu>\d{1,3})\b",
    rf"total capac(?:i)?ty of (?P<capacity_bytes>{_SIZE})",
    rf"; (?P<capacity_bytes>{_SIZE}) total capac(?:i)?ty",
    rf"of which (?P<free_bytes>{_SIZE}) is free",
    rf"; (?P<free_bytes>{_SIZE}) free",
    rf"this process has (?P<process_bytes>{_SIZE})",
    rf"of the allocated memory (?P<allocated_bytes>{_SIZE}) is allocated",
    rf"; (?P<allocated_bytes>{_SIZE}) already allocated",
    rf"\band (?P<reserved_unallocated_bytes>{_SIZE}) is reserved by pytorch but unallocated",
    rf"; (?P<reserved_total_bytes>{_SIZE}) reserved in total",
    rf"; (?P<reserved_unallocated_bytes>{_SIZE}) cached",
    rf"(?P<private_pools_bytes>{_SIZE}) allocated in private pools",
    rf"(?P<allowed_bytes>{_SIZE}) allowed",
    rf"MPS allocated: (?P<allocated_bytes>{_SIZE})",
    rf"other allocations: (?P<other_bytes>{_SIZE})",
    rf"max allowed: (?P<allowed_bytes>{_SIZE})",
    rf"requested +: (?P<tried_bytes>{_SIZE})",
    rf"device limit +: (?P<capacity_bytes>{_SIZE})",
    rf"free \(according to cuda\): (?P<free_bytes>{_SIZE})",
)
_OOM_VALUES = tuple(words.replace(" ", r"\s") for words in _OOM_WORDS)
"""A terminal of any width may have wrapped them."""
SIGNATURES: tuple[Signature, ...] = (
    signature(
        "cuda_oom",
        "out of memory|outofmemory|resource_exhausted|allocation on device|tried to allocate|oom when allocating",
        r"(?:cuda|hip|xpu|mps backend|npu) out of memory"
        r"|OutOfMemoryError: (?!.{0,40}host)(?:cuda|hip|xpu|allocation on device)"
        r"|cuda error: out of memory|cuda runtime error \(2\)|cuda_error_out_of_memory"
        r"|Cuda failure (?:2 )?'out of memory'"
        rf"|tried to allocate {_SIZE} \(GPU \d|OOM when allocating tensor with .{{1,400}}\bGPU"
        r"|cudaErrorMemoryAllocation|CUDA driver error: out of memory|RESOURCE_EXHAUSTED: Out of memory",
        *_OOM_VALUES,
        following=6,
        others=rf"\bprocess (?P<pid>\d{{1,9}}) has (?P<size>{_SIZE}) memory in use",
        unless=r"^\s*(?:raise|except|if|#|return)\b|except .{0,80}:$"
        r"|\b(?:no|never|avoid|prevent|without|in case of|if you (?:get|see|hit|run into|encounter)"
        r"|(?:may|might|can|could|will) (?:cause|lead to|result in|run into)) (?:an? |the )?"
        r"(?:cuda |gpu )?out of memory",
    ),
    signature(
        "cuda_oom",
        "alloc_failed",
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
    ),
    signature(
        "kv_cache",
        "memory for the cache blocks|kv cache|on startup is less than|not enough memory. please try",
        r"No available memory for the cache blocks"
        rf"|\((?P<needed_bytes>{_SIZE}) KV cache is needed, which is larger than the available KV cache memory "
        rf"\((?P<available_bytes>{_SIZE})\)"
        r"|max seq len \(\d{1,9}\) is larger than the maximum number of tokens that can be stored in KV cache"
        r"|Free memory on device [^\n]{0,80}on startup is less than desired GPU memory utilization"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",  # SGLang
        rf"KV cache memory \((?P<available_bytes>{_SIZE})\)",
        r"estimated maximum model length is (?P<longest>\d{1,9})",
        r"Free memory on device (?:cuda:\d{1,3} )?\((?P<free_gib>[\d.]{1,12})/(?P<total_gib>[\d.]{1,12}) GiB\)",
        unless=r"^\s*(?:raise|except|#)|^\s*\"",
    ),
    signature(
        "device_assert",
        "assert",
        r"(?P<file>[\w./-]{1,200}\.cuh?):(?P<line_number>\d{1,6}): (?:(?P<function>[^:\n]{0,300}): )?"
        r"block: \[(?P<block>[\d,]{1,40})\], thread: \[(?P<thread>[\d,]{1,40})\],? assertion "
        r"[`'\"]?(?P<assertion>[^`'\"\n]{1,200})",
    ),
    signature(
        "device_assert",
        "device-side assert",
        r"cuda error: device-side assert triggered|cudaErrorAssert\b|cuda runtime error \(59\)|CUDA_ERROR_ASSERT",
    ),
    signature(
        "illegal_access",
        "illegal memory access|misaligned address|cudaerrorillegaladdress|cuda_error_illegal_address|illegal address",
        r"(?:an )?illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS"
        r"|cuda error: misaligned address|cuda runtime error \((?:77|700)\)",
        r"(?P<watchdog>watchdog thread terminated)",
        r"\[(?:PG .{0,80} )?rank (?P<rank>\d{1,6})\]",
    ),
    signature(
        "gpu_hardware",
        "ecc error|xid|fallen off the bus|unspecified launch failure|hardware stack error|gpu is lost|gpu "
        "requires reset",
        r"uncorrectable (?:nvlink |ecc )?(?:ecc )?error|NVRM: Xid \((?P<bus>[^)]{1,40})\): (?P<xid>\d{1,4})"
        r"|GPU (?:has|is) (?:fallen off the bus|lost)|hardware stack error",
    ),
    signature(
        "gpu_unavailable",
        "nvidia driver|no cuda-capable|busy or unavailable|no cuda gpus|invalid device ordinal|driver version is "
        "insufficient|system not yet initialized|unknown error|cuda_error_no_device|driver/library version "
        "mismatch",
        r"found no nvidia driver|no cuda-capable device is detected|no cuda gpus are available|invalid device ordinal"
        r"|CUDA-capable device\(s\) is/are busy or unavailable|CUDA unknown error - this may be due"
        r"|driver version is insufficient|nvidia driver on your system is too old|system not yet initialized"
        r"|CUDA initialization: (?P<reason2>[^\n]{1,80})"
        r"|cudaGetDeviceCount\(\).{0,200}?(?P<reason>error \d{1,4}[^\n]{0,80})|Driver/library version mismatch",
    ),
    signature(
        "no_kernel_image",
        "no kernel image|is not compatible with the current pytorch",
        r"no kernel image is available|cuda capability (?P<capability>sm_\d{1,4}) is not compatible",
    ),
    signature(
        "cuda_library",
        "cublas_status_|cudnn_status_|cusolver_status_|cusparse_status_|cufft_",
        r"(?P<status>(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_(?!ALLOC_FAILED|SUCCESS)[A-Z_]{1,40}"
        r"|CUFFT_[A-Z_]{1,40})",
    ),
    signature(
        "cuda_error",
        "cuda error:|cuda runtime error|cuda_error_|acceleratorerror",
        r"(?:AcceleratorError: (?:CUDA error: )?|CUDA error: )(?P<error>[^\n]{1,120})"
        r"|cuda runtime error \((?P<code>\d{1,4})\)[ :]{0,3}(?P<error2>[^\n]{0,120})",
        unless=r"out of memory|device-side assert|illegal memory access|misaligned|no kernel image|ecc error"
        r"|invalid device ordinal|no cuda-capable|(?:CUBLAS|CUDNN)_STATUS|\((?:2|59|77|700)\)|system not yet"
        r"|hardware stack|driver version|busy or unavailable",
    ),
)

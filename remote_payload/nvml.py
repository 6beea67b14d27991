"""What the GPUs say of themselves at a line of metrics.jsonl, through NVML (pip install nvidia-ml-py), if it is there.

Rule: optional, and never a reason for a run to fail: what cannot be read is None, and NVML that cannot be had is not
asked again.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Dict, List, Optional

READINGS = {
    "gpu_utilisation_percent": lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    "gpu_memory_used_mib": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**20,
    "gpu_power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "gpu_temperature_c": lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    "gpu_sm_clock_mhz": lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
}


def visible_uuids() -> List[str]:
    """Of the GPUs torch uses in this process, in its order: NVML counts those, too, that CUDA_VISIBLE_DEVICES hides."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(torch.cuda.device_count())]


class GpuSampler:
    def __init__(self, uuids: Callable[[], List[str]] = visible_uuids) -> None:
        self._uuids = uuids
        self._nvml: Any = None
        self._handles: Optional[List[Any]] = None

    def __call__(self) -> Dict[str, List[Optional[float]]]:
        """name -> a value for each GPU. Empty without GPUs or NVML."""
        if self._handles is None:
            uuids = self._uuids_or_none()
            if not uuids:
                return {}  # torch may take its GPUs later
            self._handles = self._open(uuids)
        if not self._handles:
            return {}
        return {name: [self._read(reading, gpu) for gpu in self._handles] for name, reading in READINGS.items()}

    def _uuids_or_none(self) -> List[str]:
        try:
            return self._uuids()
        except Exception:  # a torch that tells no uuid
            return []

    def _open(self, uuids: List[str]) -> List[Any]:
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            return [self._nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        except Exception:  # not installed, no driver library, a GPU it does not know
            return []

    def _read(self, reading: Callable[[Any, Any], float], gpu: Any) -> Optional[float]:
        try:
            return reading(self._nvml, gpu)
        except Exception:  # N/A on this GPU, or the GPU is lost
            return None

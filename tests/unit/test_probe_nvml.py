"""What the NVML program says, as facts and in words."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.gpu import GpuFact, GpuProcess
from orchestrator.probes.nvml import Nodes, failure_text, parse_nodes, parse_nvml, warnings

ROW: dict[str, Any] = {
    "index": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-0",
    "bus": "00000000:19:00.0",
    "memory_total_bytes": 143771 * 2**20,
    "memory_used_bytes": 900 * 2**20 + 5,
    "utilization_percent": 98,
    "memory_utilization_percent": 30,
    "temperature_c": 61,
    "power_mw": 650123,
    "power_limit_mw": 700000,
    "sm_clock_mhz": 1980,
    "sm_clock_max_mhz": 1980,
    "memory_clock_mhz": 3201,
    "performance_state": 0,
    "throttle_bits": 0x4 | 0x40 | 0x800,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "mig_mode": 0,
    "processes": [[17, 900 * 2**20], [18, None], "x", [None, 1]],
    "error": None,
}
ALL_THERE = Nodes(8, 8, True, "580.95.05")


def test_a_row_becomes_nvidia_smis_numbers():
    (gpu,) = parse_nvml({"gpus": [ROW]})
    assert gpu == GpuFact(
        index=0,
        name="NVIDIA H200",
        memory_total_mib=143771,
        memory_used_mib=901,
        utilization_percent=98,
        uuid="GPU-0",
        bus="00000000:19:00.0",
        memory_utilization_percent=30,
        temperature_c=61,
        power_w=650.12,
        power_limit_w=700.0,
        sm_clock_mhz=1980,
        sm_clock_max_mhz=1980,
        memory_clock_mhz=3201,
        performance_state="P0",
        throttle=("sw_power_cap", "hw_thermal_slowdown", "0x800"),
        ecc_corrected=0,
        ecc_uncorrected=0,
        mig=False,
        processes=(GpuProcess(17, 900), GpuProcess(18, None)),
    )


def test_what_is_not_answered_is_unknown_and_a_lost_gpu_says_so():
    nothing = parse_nvml({"gpus": [dict.fromkeys(ROW)]})[0]
    assert nothing == GpuFact(None, None, None, None)
    told = {"gpus": [ROW, {"index": 1, "name": "NVIDIA H200", "error": {"code": 15, "text": "GPU is\x1b[31m lost"}}]}
    gpus = parse_nvml(told)
    assert gpus[1] == GpuFact(1, "NVIDIA H200", None, None, error="GPU is lost (NVML code 15)")
    assert warnings(gpus, Nodes(None, 2, True, None)) == ("GPU 1: GPU is lost (NVML code 15)",)


def test_what_is_wrong_around_the_gpus_is_said_only_when_it_is_known():
    gpus = parse_nvml({"gpus": [ROW] * 7})
    assert warnings(gpus, ALL_THERE) == ("the driver tells of 7 GPUs, and /dev has 8",)
    assert warnings(gpus, Nodes(8, 7, True, None)) == (), "the other one was not given to this container"
    assert warnings(gpus, Nodes(8, None, None, None)) == ("the driver tells of 7 GPUs, and the PCI bus has 8",)
    assert warnings(gpus, Nodes(0, None, None, None)) == ()
    assert "no /dev/nvidia-uvm" in warnings(gpus, Nodes(8, 7, False, None))[0]
    assert warnings(None, Nodes(8, 8, False, None)) == ()
    bad = parse_nvml({"gpus": [{**ROW, "ecc_uncorrected": 2}]})
    assert warnings(bad, Nodes(1, 1, True, None)) == ("GPU 0: 2 ECC errors that could not be corrected",)


def test_a_failure_names_its_cause():
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06"
    failed = {"call": "nvmlInit_v2", "code": 18, "text": "Driver/library version mismatch", "library": library}
    said = failure_text(failed, ALL_THERE)
    assert "version mismatch (code 18): the kernel module is 580.95.05, the library 570.124.06;" in said
    lost = failure_text({"code": 999, "text": "Unknown Error", "control_node": "EPERM"}, ALL_THERE)
    assert "may not be opened (EPERM), the container has lost its GPUs: restart it" in lost
    assert "kernel log" in failure_text({"code": 999, "text": "Unknown Error", "control_node": None}, ALL_THERE)
    assert "there is no /dev/nvidiactl" in failure_text({"code": 9, "text": "x", "control_node": "ENOENT"}, ALL_THERE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ROW, "code", "text"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(ROW)), json_values), st.dictionaries(st.text(max_size=5), json_values))
def test_any_answer_is_survived(row, failed):
    gpus = parse_nvml({"gpus": [row]})
    warnings(gpus, parse_nodes(row))
    failure_text({**failed, **row}, ALL_THERE)

"""Which GPU is whose, where the payload has said so."""

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.gpu_roles import gpu_roles


def gpus(*uuids: str | None) -> list[GpuFact]:
    return [GpuFact(index, "H200", None, None, uuid=uuid) for index, uuid in enumerate(uuids)]


def test_a_device_is_found_by_its_uuid() -> None:
    runtime = {"devices": [{"uuid": "GPU-b", "roles": ["target"]}, {"uuid": "GPU-a", "roles": ["target", "drafter"]}]}
    assert gpu_roles(gpus("GPU-a", "GPU-b", "GPU-c", None), runtime) == ("target+drafter", "target", None, None)


def test_ranks_know_better_than_the_one_device_that_a_rank_sees() -> None:
    ranks = [{"uuid": "GPU-b", "role": "target"}, {"uuid": "GPU-a", "role": "drafter"}, {"uuid": None, "role": "x"}]
    runtime = {"ranks": ranks, "devices": [{"uuid": "GPU-a", "roles": []}]}
    assert gpu_roles(gpus("GPU-a", "GPU-b"), runtime) == ("drafter", "target")
    assert gpu_roles(gpus("GPU-c"), runtime) == ()


def test_by_its_place_only_where_there_are_as_many() -> None:
    runtime = {"devices": [{"roles": ["target"]}, {"roles": ["drafter"]}]}
    assert gpu_roles(gpus(None, None), runtime) == ("target", "drafter")
    assert gpu_roles(gpus(None, None, None), runtime) == ()


def test_nothing_said_is_nothing_known() -> None:
    for runtime in (None, {}, {"devices": "x"}, {"devices": [{"uuid": "GPU-a"}]}, {"devices": [3]}):
        assert gpu_roles(gpus("GPU-a"), runtime) == ()

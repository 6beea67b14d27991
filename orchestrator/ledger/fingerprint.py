"""fingerprint.json as facts: what a run started from. Schema orch.fingerprint/1.

Rule: pure; what the record does not tell is None, and a record of another schema is read as far as it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.gpu_csv import parse_gpu_csv
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str, as_strs

SCHEMA = "orch.fingerprint/1"


@dataclass(frozen=True)
class ReleaseFacts:
    tree_hash: str | None
    files: int | None
    bytes: int | None
    git_commit: str | None
    git_branch: str | None
    git_dirty_files: tuple[str, ...] | None
    """None: it did not come from a git repository."""
    deployed_by: str | None
    deployed_at: float | None


@dataclass(frozen=True)
class TorchBuild:
    """As torch/version.py says."""

    version: str | None
    git_version: str | None
    cuda: str | None
    """What it was built for; None: without CUDA, or not known."""
    hip: str | None


@dataclass(frozen=True)
class Gpu:
    index: int | None
    name: str | None
    memory_total_mib: int | None


@dataclass(frozen=True)
class Limits:
    memory_bytes: int | None
    cpu_cores: float | None
    cpus: tuple[int, ...]
    """Those it may run on."""
    shm_bytes: int | None
    disk_free_bytes: int | None


@dataclass(frozen=True)
class Fingerprint:
    schema: str
    run_id: str | None
    taken_at: float | None
    orch_version: str | None
    release: ReleaseFacts | None
    python: str | None
    """Version of the payload's interpreter."""
    python_path: str | None
    packages: Mapping[str, str] | None
    torch: TorchBuild | None
    driver: str | None
    gpus: tuple[Gpu, ...] | None
    variables: Mapping[str, str]
    """Of the training's environment, those whose values are kept."""
    other_variables: tuple[str, ...]
    """Names only."""
    spec: Mapping[str, object]
    cache: CompileCache | None
    """As it was before the training began."""
    limits: Limits | None
    kernel: str | None
    libc: str | None
    hostname: str | None
    boot_id: str | None
    unknown: Mapping[str, str]
    """Section -> why it could not be collected."""


def parse_fingerprint(record: object) -> Fingerprint | None:
    """None when there is none, or it cannot be read."""
    raw = as_mapping(record)
    schema = as_str(raw.get("schema"))
    if schema is None or "broken" in raw:
        return None
    python, machine, variables = (as_mapping(raw.get(name)) for name in ("python", "machine", "variables"))
    packages = raw.get("packages")
    return Fingerprint(
        schema=schema,
        run_id=as_str(raw.get("run_id")),
        taken_at=as_float(raw.get("taken_at")),
        orch_version=as_str(as_mapping(raw.get("orch")).get("version")),
        release=_release(as_mapping(raw.get("release"))),
        python=as_str(python.get("version")),
        python_path=as_str(python.get("executable")) or as_str(python.get("path")),
        packages=_texts(packages) if isinstance(packages, dict) else None,
        torch=_torch(as_mapping(raw.get("torch"))),
        driver=as_str(as_mapping(raw.get("driver")).get("version")),
        gpus=_gpus(as_mapping(raw.get("nvidia_smi"))),
        variables=_texts(as_mapping(variables.get("values"))),
        other_variables=as_strs(variables.get("names")),
        spec=as_mapping(raw.get("spec")),
        cache=parse_cache_stats(raw.get("cache")),
        limits=_limits(as_mapping(raw.get("limits"))),
        kernel=as_str(machine.get("kernel")),
        libc=as_str(machine.get("libc")),
        hostname=as_str(machine.get("hostname")),
        boot_id=as_str(machine.get("boot_id")),
        unknown=_texts(as_mapping(raw.get("unknown"))),
    )


def _release(raw: Mapping[str, object]) -> ReleaseFacts | None:
    if not raw:
        return None
    git = as_mapping(raw.get("git"))
    return ReleaseFacts(
        tree_hash=as_str(raw.get("tree_hash")),
        files=as_int(raw.get("files")),
        bytes=as_int(raw.get("bytes")),
        git_commit=as_str(git.get("commit")),
        git_branch=as_str(git.get("branch")),
        git_dirty_files=as_strs(git.get("dirty_files")) if git else None,
        deployed_by=as_str(raw.get("deployed_by")),
        deployed_at=as_float(raw.get("pushed_at")),
    )


def _torch(raw: Mapping[str, object]) -> TorchBuild | None:
    if not raw:
        return None
    return TorchBuild(
        version=as_str(raw.get("version")),
        git_version=as_str(raw.get("git_version")),
        cuda=as_str(raw.get("cuda")),
        hip=as_str(raw.get("hip")),
    )


def _gpus(raw: Mapping[str, object]) -> tuple[Gpu, ...] | None:
    csv = as_str(raw.get("csv"))
    if csv is None or raw.get("error") is not None:
        return None
    return tuple(Gpu(gpu.index, gpu.name, gpu.memory_total_mib) for gpu in parse_gpu_csv(csv).gpus)


def _limits(raw: Mapping[str, object]) -> Limits | None:
    if not raw:
        return None
    cpus = raw.get("cpus")
    return Limits(
        memory_bytes=as_int(raw.get("memory_bytes")),
        cpu_cores=as_float(raw.get("cpu_cores")),
        cpus=tuple(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else (),
        shm_bytes=as_int(raw.get("shm_bytes")),
        disk_free_bytes=as_int(raw.get("disk_free_bytes")),
    )


def _texts(raw: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in raw.items() if isinstance(value, str)}

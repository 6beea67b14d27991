"""fingerprint.json as facts: what a run started from. Schema orch.fingerprint/2; 1 is read too.

Rule: pure; what the record does not tell is None, and a record of another schema is read as far as it is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str, as_strs

SCHEMA = "orch.fingerprint/2"


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


def canonical_identity(record: Mapping[str, object]) -> str:
    """One line of JSON, sorted, of what is compared: the same, byte for byte, for the same."""
    return json.dumps(record.get("identity"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def identity_hash(record: Mapping[str, object]) -> str | None:
    """16 hex digits; None for a record that tells nothing that is compared."""
    if not as_mapping(record.get("identity")):
        return None
    return hashlib.sha256(canonical_identity(record).encode("ascii")).hexdigest()[:16]


def sections(record: object) -> Mapping[str, object]:
    """Section -> what it holds, whichever schema it is of: in 1 they stand side by side. Empty when there is none."""
    raw = as_mapping(record)
    if as_str(raw.get("schema")) is None or "broken" in raw:
        return {}
    return {**raw, **as_mapping(raw.get("observed")), **as_mapping(raw.get("identity"))}


def parse_fingerprint(record: object) -> Fingerprint | None:
    """None when there is none, or it cannot be read."""
    raw = sections(record)
    schema = as_str(raw.get("schema"))
    if schema is None:
        return None
    python, machine, variables = (as_mapping(raw.get(name)) for name in ("python", "machine", "variables"))
    packages, host, disk = raw.get("packages"), as_mapping(raw.get("host")), as_mapping(raw.get("disk"))
    return Fingerprint(
        schema=schema,
        run_id=as_str(raw.get("run_id")),
        taken_at=as_float(raw.get("taken_at")),
        orch_version=as_str(as_mapping(raw.get("orch")).get("version")),
        release=_release(as_mapping(raw.get("release")), as_mapping(raw.get("deployed"))),
        python=as_str(python.get("version")),
        python_path=as_str(python.get("executable")) or as_str(python.get("path")),
        packages=_texts(packages) if isinstance(packages, dict) else None,
        torch=_torch(as_mapping(raw.get("torch"))),
        driver=as_str(as_mapping(raw.get("driver")).get("version")),
        gpus=gpus_of(raw),
        variables=_texts(as_mapping(variables.get("values"))),
        other_variables=tuple(sorted(as_mapping(variables.get("hashed")))) or as_strs(variables.get("names")),
        spec=as_mapping(raw.get("spec")),
        cache=parse_cache_stats(raw.get("cache")),
        limits=_limits(as_mapping(raw.get("limits")), as_int(disk.get("free_bytes"))),
        kernel=as_str(machine.get("kernel")),
        libc=as_str(machine.get("libc")),
        hostname=as_str(host.get("hostname")) or as_str(machine.get("hostname")),
        boot_id=as_str(host.get("boot_id")) or as_str(machine.get("boot_id")),
        unknown=_texts(as_mapping(raw.get("unknown"))),
    )


def _release(raw: Mapping[str, object], deployed: Mapping[str, object]) -> ReleaseFacts | None:
    if not raw:
        return None
    deployed = deployed or raw
    git = as_mapping(raw.get("git"))
    return ReleaseFacts(
        tree_hash=as_str(raw.get("tree_hash")),
        files=as_int(raw.get("files")),
        bytes=as_int(raw.get("bytes")),
        git_commit=as_str(git.get("commit")),
        git_branch=as_str(git.get("branch")),
        git_dirty_files=as_strs(git.get("dirty_files")) if git else None,
        deployed_by=as_str(deployed.get("deployed_by")),
        deployed_at=as_float(deployed.get("pushed_at")),
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


def gpus_of(raw: Mapping[str, object]) -> tuple[Gpu, ...] | None:
    """raw: the sections. None: not known."""
    listed = raw.get("gpus")
    if isinstance(listed, list):
        told = [as_mapping(gpu) for gpu in listed]
        return tuple(
            Gpu(as_int(gpu.get("index")), as_str(gpu.get("name")), as_int(gpu.get("memory_total_mib"))) for gpu in told
        )
    smi = as_mapping(raw.get("nvidia_smi"))
    csv = as_str(smi.get("csv"))
    if csv is None or smi.get("error") is not None:
        return None
    from orchestrator.probes.gpu_csv import parse_gpu_csv  # long to import, and only for a GPU asked by nvidia-smi

    return tuple(Gpu(gpu.index, gpu.name, gpu.memory_total_mib) for gpu in parse_gpu_csv(csv).gpus)


def _limits(raw: Mapping[str, object], disk_free_bytes: int | None) -> Limits | None:
    if not raw:
        return None
    cpus = raw.get("cpus")
    return Limits(
        memory_bytes=as_int(raw.get("memory_bytes")),
        cpu_cores=as_float(raw.get("cpu_cores")),
        cpus=tuple(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else (),
        shm_bytes=as_int(raw.get("shm_bytes")),
        disk_free_bytes=as_int(raw.get("disk_free_bytes")) if disk_free_bytes is None else disk_free_bytes,
    )


def _texts(raw: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in raw.items() if isinstance(value, str)}

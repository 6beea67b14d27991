"""What of a run can be compared, as text: section -> name -> value.

Rule: a section that is None, and a value that is None, was not observed; a name that is missing in an observed section
is known not to be there. The part of a section's name before a colon is its kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from orchestrator.ledger.fingerprint import sections
from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.values import as_int, as_mapping, as_str, as_strs

Values = Mapping[str, str | None]
Facts = Mapping[str, Values | None]
Raw = Mapping[str, object]

NONE = "none"
"""It is known that there is none."""
COMPILER = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
LOADED = ("python", "torch", "cuda", "cudnn", "nccl", "triton", "transformers", "tokenizers")
GPU_SETTINGS = {
    "VBIOS": "vbios",
    "power limit (W)": "power_limit_w",
    "ECC": "ecc_mode",
    "MIG": "mig_mode",
    "compute mode": "compute_mode",
    "persistence mode": "persistence_mode",
}


def comparable_facts(record: object, runtime: Raw | None) -> Facts:
    """record: fingerprint.json; runtime: runtime.json, None while (or because) nobody wrote it."""
    raw = sections(record)
    unknown = as_mapping(raw.get("unknown"))

    def told(name: str, read: Callable[[object], Values]) -> Values | None:
        """None: the section is missing, or could not be collected."""
        return None if name not in raw or name in unknown else read(raw[name])

    variables = as_mapping(raw.get("variables"))
    return {
        "edited": told("edited", _texts),
        "expected": told("expected", _expected),
        "package_edits": told("package_edits", _texts),
        "torch": told("torch", _torch),
        "code": None if "release" in unknown else _listing(as_mapping(raw.get("release"))),
        "release": told("release", _release),
        "git": told("release", _git),
        "packages": told("packages", _texts),
        "origins": told("origins", _texts),
        "builds": told("builds", _texts),
        "driver": told("driver", lambda value: _scalar("driver", as_mapping(value).get("version") if value else NONE)),
        "gpus": told("gpus", _gpus),
        "python": told("python", lambda value: _fields(value, "version", "executable")),
        "lock": told("lock", lambda value: _scalar("lock", value or NONE)),
        "settings": told("spec", lambda value: _json_values(as_mapping(value).get("settings"))),
        "spec": told("spec", _spec),
        "variables": told("variables", lambda value: _texts(as_mapping(value).get("values"))),
        # Hashes made with two keys are not comparable: they are two sections, each unknown on the other side.
        **({f"secrets:{variables['key']}": _texts(variables["hashed"])} if {"key", "hashed"} <= {*variables} else {}),
        "data": told("data", lambda value: _scalar("data", _content(value))),
        "model": told("model", lambda value: _scalar("model", _content(value))),
        "limits": told("limits", _limits),
        "container": told("container", _texts),
        "machine": told(
            "machine", lambda value: _fields(value, "kernel", "architecture", "libc", "cpu_model", "huge_pages")
        ),
        **_runtime(runtime),
        **_observed(raw),
    }


def cache_of(record: object) -> CompileCache | None:
    """As it was before the start."""
    return parse_cache_stats(sections(record).get("cache"))


def _runtime(runtime: Raw | None) -> Facts:
    compiler = as_mapping((runtime or {}).get("compiler_settings"))
    found: dict[str, Values | None] = {
        f"compiler:{module}": {f"{module}.{name}": _of_no_run(_json(value)) for name, value in settings.items()}
        if isinstance(settings := compiler.get(module), dict)
        else None
        for module in COMPILER
    }
    replaced = (runtime or {}).get("replaced_functions")
    found["replaced"] = (
        {name: _place(str(place)) for name, place in replaced.items()} if isinstance(replaced, dict) else None
    )
    loaded = {name: _text(runtime.get(name)) for name in LOADED} if runtime else None
    found["loaded"] = loaded if loaded and any(loaded.values()) else None
    return found


def _observed(raw: Raw) -> Facts:
    """Kinds that are outside identity."""
    host, state = as_mapping(raw.get("host")), raw.get("gpu_state")
    gpus = [as_mapping(gpu) for gpu in state] if isinstance(state, list) else []
    return {
        "observed:host": {"host name": as_str(host.get("hostname")), "boot": as_str(host.get("boot_id"))},
        "observed:gpus": {
            "GPUs (UUIDs)": _each([gpu.get("uuid") for gpu in gpus]),
            "uncorrected ECC errors": _each([gpu.get("uncorrected_ecc_errors") for gpu in gpus]),
        },
        "observed:orch": {"orch": as_str(as_mapping(raw.get("orch")).get("version"))},
    }


def _texts(value: object) -> dict[str, str | None]:
    return {name: _text(inner) for name, inner in as_mapping(value).items()}


def _fields(value: object, *names: str) -> Values:
    """Those that are not there are not known."""
    raw = as_mapping(value)
    return {name.replace("_", " "): _text(raw.get(name)) for name in names}


def _scalar(name: str, value: object) -> Values:
    return {name: _text(value)}


def _expected(value: object) -> Values:
    told = {path: as_mapping(about) for path, about in as_mapping(value).items()}
    words = {True: "as expected", False: "not as expected"}
    return {
        path: f"{about.get('found')} ({words[about['as_expected'] is True]})" if "as_expected" in about else None
        for path, about in told.items()
    }


def _torch(value: object) -> Values:
    raw = as_mapping(value)
    if not raw:
        return _scalar("torch", NONE)
    built = f"CUDA {raw['cuda']}" if raw.get("cuda") else f"HIP {raw['hip']}" if raw.get("hip") else "no CUDA"
    git = f", git {str(raw['git_version'])[:12]}" if raw.get("git_version") else ""
    # One value: a build differs from another as a whole.
    return _scalar("torch", f"{raw['version']} ({built}{git})" if raw.get("version") else None)


def _release(value: object) -> Values:
    return _scalar("release", as_mapping(value).get("tree_hash") if value else NONE)


def _listing(release: Raw) -> Values | None:
    listing = release.get("listing")
    return _texts(listing) if isinstance(listing, dict) else None


def _git(value: object) -> Values:
    git = as_mapping(as_mapping(value).get("git"))
    if not git:
        return {"commit": NONE, "branch": NONE, "not committed": NONE}
    dirty = " ".join(sorted(as_strs(git.get("dirty_files"))))
    return {
        "commit": as_str(git.get("commit")),
        "branch": as_str(git.get("branch")) or NONE,
        "not committed": dirty or NONE,
    }


def _spec(value: object) -> Values:
    spec = as_mapping(value)
    names = {"targets": "targets", "drafters": "drafters", "data": "data path", "model": "model path"}
    names |= {"resume_from": "resumed from", "payload": "payload"}
    found: dict[str, str | None] = {name: _text(spec.get(key, NONE) or NONE) for key, name in names.items()}
    return found | {"command": " ".join(as_strs(spec.get("argv")))}


def _gpus(value: object) -> Values:
    if not isinstance(value, list):
        return {"installed": NONE}
    gpus = [as_mapping(gpu) for gpu in value]
    models = [f"{gpu['name']}, {gpu.get('memory_total_mib')} MiB" if gpu.get("name") else None for gpu in gpus]
    settings = {name: _each([gpu.get(key) for gpu in gpus]) for name, key in GPU_SETTINGS.items()}
    return {"installed": NONE if not gpus else _counted(models), **settings}


def _limits(value: object) -> Values:
    raw = as_mapping(value)
    cpus = raw.get("cpus")
    numbers = sorted(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else []
    return {
        "memory limit": _text(raw.get("memory_bytes")),
        "CPU limit": _text(raw.get("cpu_cores")),
        "CPUs": ranges_text(numbers) or None,
        "/dev/shm": _text(raw.get("shm_bytes")),
    }


def _content(value: object) -> str | None:
    """`3 files, 1200 bytes, content 0123456789ab`"""
    if value is None:
        return NONE
    raw = as_mapping(value)
    if raw.get("missing"):
        return "not there"
    if "revision" in raw:
        return as_str(raw["revision"])
    files, size, sample = as_int(raw.get("files")), as_int(raw.get("bytes")), as_str(raw.get("sample"))
    if files is None or size is None or sample is None:
        return None
    return f"{files} files, {size} bytes, content {sample[:12]}"


def ranges_text(numbers: list[int]) -> str:
    """`0-3,8`"""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _each(values: list[object]) -> str | None:
    """One value when all have it; None when any is not known."""
    texts = [_text(value) for value in values]
    if not texts or None in texts:
        return None
    return texts[0] if len(set(texts)) == 1 else ", ".join(str(text) for text in texts)


def _counted(models: list[str | None]) -> str | None:
    if None in models:
        return None
    kinds = {model: models.count(model) for model in models}
    return "; ".join(f"{count} x {model}" for model, count in kinds.items())


def _place(text: str) -> str:
    """Without the line, which moves with every edit above it."""
    return re.sub(r":\d+$", "", _of_no_run(text))


def _of_no_run(text: str) -> str:
    """Without what is another in each run, release or environment: their names, and addresses of objects."""
    text = re.sub(r"[^\s'\"]*/releases/[0-9a-f]{64}/", "", text)
    text = re.sub(r"[^\s'\"]*/envs/[^/\s]+/", "{environment}/", text)
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"/runs/\d{8}-\d{6}-[0-9a-f]+", "/runs/{run}", text))


def _json_values(value: object) -> Values:
    return {name: _json(inner) for name, inner in as_mapping(value).items()}


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else _json(value)

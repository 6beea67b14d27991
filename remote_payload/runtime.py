"""What the training really runs on, as it was loaded: runtime.json. Beside fingerprint.json, which says what the files
promise, it tells when something else was imported.

Rule: it costs the start nothing that the run would not pay anyway: compiler modules are imported only on CUDA.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

import torch

if TYPE_CHECKING:
    from devices import Placement

DECORATORS = tuple(
    os.path.join(os.path.dirname(torch.__file__), *words)
    for words in (("utils", "_contextlib.py"), ("_compile.py",), ("_dynamo", "eval_frame.py"))
)
"""Where torch keeps wrappers that its own functions wear."""
COMPILER_SETTINGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
WATCHED = (
    "torch.fx._symbolic_trace:is_fx_symbolic_tracing",
    "torch.fx._symbolic_trace:Tracer.trace",
    "torch.nn.modules.module:Module.__call__",
    "torch.nn.modules.module:Module.__getattr__",
    "torch.nn.attention.flex_attention:flex_attention",
    "torch.nn.attention.flex_attention:create_block_mask",
    "torch.utils.checkpoint:checkpoint",
    "torch.nn.utils.clip_grad:clip_grad_norm_",
    "torch.optim.adamw:AdamW",
    "torch.serialization:load",
    "torch._dynamo.eval_frame:_TorchDynamoContext.__call__",
)
"""module:name of functions that others are known to replace, for the whole process."""


def runtime_facts(placement: Placement, *, alone: bool = False) -> Dict[str, Any]:
    """alone: this process is one of several, a device each."""
    on_cuda = placement.device.type == "cuda"
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch.__version__,
        "torch_path": os.path.dirname(torch.__file__),
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if on_cuda else None,
        "nccl": nccl_version() if on_cuda else None,
        "triton": loaded_version("triton", wanted=on_cuda),
        "transformers": loaded_version("transformers", wanted=True),
        "tokenizers": loaded_version("tokenizers", wanted=True),
        "devices": devices(placement, alone=alone) if on_cuda else [],
        "device": str(placement.device),
        "device_name": torch.cuda.get_device_name(placement.device) if on_cuda else None,
        "cpu_cores": os.cpu_count(),
        "placement": placement.note,
        "replaced_functions": replaced_functions(),
        "compiler_settings": {name: changed_settings(loaded(name, wanted=on_cuda)) for name in COMPILER_SETTINGS},
    }


def nccl_version() -> Optional[str]:
    try:
        found = torch.cuda.nccl.version()
    except Exception:  # a build without it
        return None
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)


def replaced_functions(watched: Sequence[str] = WATCHED) -> Dict[str, str]:
    """Those whose code is not in the file of the module they are named in -> `file:line` of the code that runs.

    A module that is not imported yet is not looked at: nothing of it is replaced.
    """
    found: Dict[str, str] = {}
    for name in watched:
        module_name, _, path = name.partition(":")
        module = sys.modules.get(module_name)
        if module is None:
            continue
        thing: Any = module
        for word in path.split("."):
            thing = getattr(thing, word, None)
        home = getattr(module, "__file__", None)
        place = code_place(thing)
        if place is None or place.rsplit(":", 1)[0] != home:
            found[name] = place or f"no Python function: {thing!r}"
    return found


def code_place(thing: Any) -> Optional[str]:
    """`file:line` of what runs when it is called, through torch's own decorators. None when that is no Python code."""
    for _ in range(10):
        code = getattr(thing, "__code__", None)
        if code is not None and code.co_filename not in DECORATORS:
            return f"{code.co_filename}:{code.co_firstlineno}"
        inner = getattr(thing, "__wrapped__", None) or getattr(
            thing, "__init__" if isinstance(thing, type) else "", None
        )
        if inner is None:
            return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
        thing = inner
    return None


def devices(placement: Placement, *, alone: bool) -> List[Dict[str, Any]]:
    found = []
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": about.name,
                "memory_bytes": about.total_memory,
                "capability": f"{about.major}.{about.minor}",
                "uuid": uuid_of(index),
                # A process of its own sees one device and knows its own role: `ranks` says all of them.
                "roles": [] if alone else roles_on(placement, torch.device("cuda", index)),
            }
        )
    return found


def uuid_of(index: int) -> Optional[str]:
    """As the driver writes it. None: this torch does not tell."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def roles_on(placement: Placement, device: torch.device) -> List[str]:
    roles = (("target", placement.targets), ("drafter", placement.drafters))
    return [role for role, used in roles if device in used]


def loaded(name: str, *, wanted: bool) -> Optional[ModuleType]:
    """The module if it is imported already, or is wanted and can be."""
    if name not in sys.modules and wanted:
        try:
            importlib.import_module(name)
        except Exception:  # a broken one is the training's matter, not that of this record
            return None
    return sys.modules.get(name)


def loaded_version(name: str, *, wanted: bool) -> Optional[str]:
    version = getattr(loaded(name, wanted=wanted), "__version__", None)
    return None if version is None else str(version)


def changed_settings(config: Optional[ModuleType]) -> Optional[Dict[str, Any]]:
    """Those of a torch config module that are not at their defaults; by environment or by hand. None: not known."""
    entries = getattr(config, "_config", None)
    if not isinstance(entries, dict):
        return None
    found: Dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # asking for an outdated setting is no use of it
        for name, entry in entries.items():
            if not hasattr(entry, "default") or getattr(entry, "alias", None) is not None:
                continue
            try:
                value = getattr(config, name)
                if value != entry.default:
                    found[name] = value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
            except Exception as error:  # a setting that torch itself cannot tell
                found[name] = f"{type(error).__name__}: {error}"
    return found

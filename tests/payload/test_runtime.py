"""What runtime.json says of a loaded torch."""

import functools
import importlib
import json
import os
import subprocess
import sys

import torch
from devices import Placement, place
from runtime import changed_settings, replaced_functions, roles_on, runtime_facts
from tiny import PAYLOAD


def test_facts_of_this_process():
    facts = runtime_facts(place("cpu", targets=1, drafters=1))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["torch"] == torch.__version__ and facts["torch_git"] == torch.version.git_version
    assert facts["pid"] == os.getpid() and facts["executable"] == sys.executable
    assert facts["devices"] == [] and facts["device"] == "cpu" and facts["cudnn"] is None


def test_each_device_has_its_roles():
    cuda = [torch.device("cuda", index) for index in range(3)]
    placement = Placement((cuda[0], cuda[1]), (cuda[1],), "")
    assert [roles_on(placement, device) for device in cuda] == [["target"], ["target", "drafter"], []]


def test_on_a_cpu_no_compiler_is_imported_for_it():
    script = (
        "import sys; from devices import place; before = set(sys.modules); from runtime import runtime_facts;"
        "facts = runtime_facts(place('cpu', targets=1, drafters=1));"
        "print('triton' in set(sys.modules) - before, facts['compiler_settings']['torch._inductor.config'])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PAYLOAD, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "False"


def test_settings_that_were_changed_are_named():
    import torch._dynamo.config as config

    before = changed_settings(config)
    with config.patch(suppress_errors=True, recompile_limit=99):
        changed = changed_settings(config)
    assert changed["suppress_errors"] is True and changed["recompile_limit"] == 99
    assert set(changed) - set(before) <= {"suppress_errors", "recompile_limit", "cache_size_limit"}
    assert before.get("suppress_errors") is not True and changed_settings(None) is None


def test_functions_replaced_for_the_whole_process_are_named_with_where_their_code_is(monkeypatch):
    importlib.import_module("torch._dynamo")  # wraps some of them itself, which is no replacing
    assert replaced_functions() == {}

    @functools.wraps(torch.fx._symbolic_trace.is_fx_symbolic_tracing)
    def never():
        return False

    monkeypatch.setattr(torch.fx._symbolic_trace, "is_fx_symbolic_tracing", never)
    # Left behind by a trace that never ended: torch's own code, but not what belongs there.
    monkeypatch.setattr(torch.nn.Module, "__getattr__", torch.fx.Tracer.trace)
    found = replaced_functions()
    assert set(found) == {
        "torch.fx._symbolic_trace:is_fx_symbolic_tracing",
        "torch.nn.modules.module:Module.__getattr__",
    }
    assert found["torch.fx._symbolic_trace:is_fx_symbolic_tracing"].startswith(f"{__file__}:")
    assert "/torch/fx/_symbolic_trace.py:" in found["torch.nn.modules.module:Module.__getattr__"]

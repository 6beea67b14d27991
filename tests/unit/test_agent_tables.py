"""The agent's tables name functions that exist, and its bundle is the same every time."""

import importlib

from orchestrator.agent import bundle
from orchestrator.agent.far import ops
from orchestrator.agent.far.liveness import Liveness


def test_every_op_exists():
    for name in ops.OPS:
        assert callable(ops.find_op(name)), name


def test_every_far_module_is_in_the_bundle():
    files = bundle.bundle_files()
    for module, _ in ops.OPS.values():
        assert f"{module}.py" in files
    assert "contract.py" in files
    assert bundle.hash_of(files) == bundle.build_bundle().agent_hash


def test_bundle_is_deterministic():
    first = bundle.build_bundle()
    bundle.build_bundle.cache_clear()
    assert bundle.build_bundle() == first


def test_far_modules_import_here():
    for name in bundle.bundle_files():
        if name not in ("contract.py", "__init__.py"):
            importlib.import_module(f"orchestrator.agent.far.{name[:-3]}")


def test_silence_ends_the_agent_after_its_limit_and_not_before():
    now = [100.0]
    liveness = Liveness(15.0, clock=lambda: now[0])
    now[0] = 114.9
    assert liveness.left_s() > 0
    liveness.touch()
    now[0] = 129.8
    assert liveness.left_s() > 0
    now[0] = 130.0
    assert liveness.left_s() <= 0


def test_the_start_is_one_line_and_small():
    argv = bundle.start_argv(["/root/venv/bin/python", "python3"])
    assert "\n" not in "".join(argv)
    assert len("".join(argv)) < 1500

"""The project obeys its structural rules, and each rule has been seen to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import architecture as rules

ROOT = Path(__file__).resolve().parent.parent
Rule = Callable[[Mapping[str, str]], list[str]]


def project_modules() -> dict[str, str]:
    """Dotted name -> source. A package's name stands for its `__init__`."""
    modules = {}
    for package in ("orchestrator", "remote_payload"):
        for path in sorted((ROOT / package).rglob("*.py")):
            words = path.relative_to(ROOT).with_suffix("").parts
            modules[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text(encoding="utf-8")
    return modules


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_project_obeys(rule: Rule) -> None:
    assert rule(project_modules()) == []


def test_all_modules_are_seen() -> None:
    modules = project_modules()
    assert {"orchestrator.errors", "orchestrator.cli.main", "orchestrator.agent.far.server", rules.CONTRACT} <= set(
        modules
    )


def test_a_module_that_may_do_io_is_there_and_does() -> None:
    """An exception that nobody needs any more is one that nobody would notice."""
    modules = project_modules()
    assert set(modules) >= rules.IO_MODULES
    without = {f"orchestrator.operations.{number}": modules[name] for number, name in enumerate(rules.IO_MODULES)}
    needed = {sentence.partition(":")[0] for sentence in rules.check_io(without)}
    assert [name for at, name in zip(without, rules.IO_MODULES, strict=True) if at not in needed] == []


BROKEN: list[tuple[Rule, dict[str, str]]] = [
    (
        rules.check_direction,
        {"orchestrator.transport.a": "import orchestrator.container.b", "orchestrator.container.b": ""},
    ),
    (rules.check_direction, {"orchestrator.transport.a": "def f():\n    from orchestrator.agent import client"}),
    (
        rules.check_direction,
        {"orchestrator.inventory.a": "if TYPE_CHECKING:\n    from orchestrator.cli.main import main"},
    ),
    (rules.check_direction, {"orchestrator.probes.gpu": "from orchestrator.transport.protocol import Completed"}),
    (rules.check_direction, {"orchestrator.probes.gpu": "from orchestrator.inventory.loader import load_inventory"}),
    (rules.check_direction, {"orchestrator.operations.a": "import orchestrator.lab.real"}),
    (rules.check_direction, {"orchestrator.operations.a": "from remote_payload import train"}),
    (rules.check_direction, {"orchestrator.operations.a": "from orchestrator.agent.far.files import read"}),
    (rules.check_direction, {"orchestrator.novelty.a": ""}),
    (rules.check_direction, {"remote_payload.train": "import orchestrator.errors"}),
    (rules.check_direction, {"remote_payload.contract": "from orchestrator import errors"}),
    (
        rules.check_direction,
        {"orchestrator.agent.far.a": "from ..client import x", "orchestrator.agent.client": ""},
    ),
    (
        rules.check_thin_packages,
        {
            "orchestrator.agent": "from orchestrator.agent.client import AgentSession",
            "orchestrator.agent.client": "",
        },
    ),
    (
        rules.check_cycles,
        {
            "orchestrator.agent.a": "from orchestrator.agent.b import x",
            "orchestrator.agent.b": "from .c import y",
            "orchestrator.agent.c": "def f():\n    from orchestrator.agent import a",
        },
    ),
    (rules.check_io, {"orchestrator.container.target": "import subprocess"}),
    (rules.check_io, {"orchestrator.operations.a": "from asyncio.subprocess import PIPE"}),
    (rules.check_io, {"orchestrator.operations.a": "import urllib.request"}),
    (
        rules.check_io,
        {"orchestrator.operations.a": "import asyncio\nasync def f():\n    await asyncio.create_subprocess_exec('a')"},
    ),
    (rules.check_io, {"orchestrator.cli.a": "import os\nos.system('a')"}),
    (rules.check_io, {"orchestrator.cli.a": "import os\nos.open('a', 0)"}),
    (rules.check_io, {"orchestrator.operations.a": "import os\nos.execvp('a', ['a'])"}),
    (rules.check_io, {"orchestrator.cli.interactive": "import os\nos.kill(1, 9)"}),
    (rules.check_io, {"orchestrator.reports.a": "open('a')"}),
    (rules.check_io, {"orchestrator.operations.a": "from pathlib import Path\nPath('a').open('rb')"}),
    (rules.check_io, {"orchestrator.inventory.select": "from pathlib import Path\nPath('a').read_text()"}),
    (rules.check_pure, {"orchestrator.probes.a": "import time"}),
    (rules.check_pure, {"orchestrator.ledger.a": "from os import environ"}),
    (rules.check_pure, {"orchestrator.reports.a": "from datetime import datetime\ndatetime.now()"}),
    (rules.check_pure, {"orchestrator.reports.a": "import datetime\ndatetime.datetime.now()"}),
    (rules.check_size, {"orchestrator.cli.a": "\n" * (rules.MAX_LINES + 1)}),
    (rules.check_function_size, {"remote_payload.a": "def f():\n" + "    g()\n" * rules.MAX_FUNCTION_LINES}),
    (
        rules.check_function_size,
        {"orchestrator.cli.a": "class A:\n    async def f(self):\n" + "        g()\n" * rules.MAX_FUNCTION_LINES},
    ),
    (rules.check_old_python, {"orchestrator.agent.far.a": "match 1:\n    case 1:\n        pass"}),
    (rules.check_old_python, {"orchestrator.agent.far.a": "import yaml"}),
    (rules.check_old_python, {"orchestrator.agent.far.a": "import tomllib"}),
    (rules.check_old_python, {"orchestrator.agent.far.a": "from orchestrator.errors import OrchError"}),
    (rules.check_old_python, {"remote_payload.contract": "import torch"}),
    (rules.check_cheap_start, {"orchestrator": "import rich"}),
    (rules.check_cheap_start, {"orchestrator.cli.main": "import asyncio.events"}),
    (
        rules.check_cheap_start,
        {"orchestrator.cli.main": "from orchestrator.cli.output import x", "orchestrator.cli.output": "import yaml"},
    ),
    (rules.check_argparse, {"orchestrator.lab.real": "import argparse"}),
]


@pytest.mark.parametrize(("rule", "modules"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_each_rule_can_fail(rule: Rule, modules: dict[str, str]) -> None:
    found = rule(modules)
    assert any(module in sentence for sentence in found for module in modules)


SOUND: dict[str, str] = {
    "orchestrator": '"""Empty."""\n__version__ = "1"',
    "orchestrator.errors": "class OrchError(Exception): ...",
    "orchestrator.cli.main": "import argparse\ndef main():\n    import asyncio\n    from orchestrator.lab import real",
    "orchestrator.cli.interactive": "import os\nos.open(os.devnull, 1)\nos.execvp('a', ['a'])",
    "orchestrator.inventory.model": "from pathlib import Path",
    "orchestrator.inventory.loader": "from pathlib import Path\nPath('a').read_text()",
    "orchestrator.probes.gpu": "from orchestrator.inventory.model import Target\n'a'.replace('a', 'b')",
    "orchestrator.agent.far.a": "from . import b\ntry:\n    from . import contract\nexcept ImportError:\n"
    "    from remote_payload import contract",
    "orchestrator.agent.far.b": "import subprocess",
    "orchestrator.lab.real": "import subprocess",
    "remote_payload.contract": "import json",
    "remote_payload.train": "import torch\nimport contract",
}


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_no_rule_cries_wolf(rule: Rule) -> None:
    assert rule(SOUND) == []

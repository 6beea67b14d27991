"""A verb imports what it does, and nothing of what others do: imports are most of what a short command takes.

Of structure, not of time: the modules are named, and a slow or busy machine changes nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

MADE_RUNS = Path(__file__).resolve().parents[2] / "benches" / "made_runs.py"
RUN = """\
import gc, json, sys
from orchestrator.cli.main import main
code = main()
print(json.dumps({"modules": [*sys.modules], "frozen": gc.get_freeze_count()}), file=sys.stderr)
sys.exit(code)
"""

# Of people's files, of a connection that nobody asked for, of drawing: no short answer needs them.
NEVER = {"asyncssh", "cryptography", "pydantic", "yaml", "rich", "tenacity", "boto3", "pip", "packaging"}
# Tables of patterns, long to compile: for texts that a healthy target does not send.
PATTERNS = {
    "orchestrator.probes.printed_words",
    "orchestrator.probes.gpu_csv",
    "orchestrator.probes.gpu_trouble",
    "orchestrator.probes.xid",
    "orchestrator.probes.failures.search",
    "orchestrator.transport.signs",
}
# What changes a target.
CHANGES = {
    "orchestrator.operations.environment",
    "orchestrator.agent.tree",
    "orchestrator.agent.wheels",
    "orchestrator.ledger.lock",
}
STORE = {"sqlite3", "orchestrator.ledger.store"}
NOT_FOR = {
    "hosts": {"asyncio", "orchestrator.operations.session"} | PATTERNS | CHANGES | STORE,
    "runs": {"orchestrator.reports.status", "orchestrator.probes.cache_census", "orchestrator.diagnosis.diff"}
    | PATTERNS
    | CHANGES,
    "status": ({"orchestrator.probes.cache_census", "orchestrator.diagnosis.diff"} | PATTERNS | CHANGES | STORE)
    - {"orchestrator.probes.xid"},  # where there are no GPUs, the kernel is asked why
    "diff": {"difflib", "orchestrator.reports.status", "orchestrator.probes.cache_census"} | PATTERNS | CHANGES,
}
SAYS = {"hosts": "this machine", "runs": "ended well", "status": "ended well", "diff": "no difference"}
CONNECT = """\
import re, sys
compiled, of_re = [], re.compile
re.compile = lambda *words, **more: compiled.append(str(words[0])) or of_re(*words, **more)
import orchestrator.transport.openssh, orchestrator.container.target
print(sorted({*sys.modules} & {"asyncssh", "cryptography", "tempfile", "orchestrator.transport.signs"}))
print([pattern for pattern in compiled if "lxc-attach" in pattern or "host key" in pattern])
"""


@dataclass(frozen=True)
class Said:
    modules: frozenset[str]
    frozen: int
    """Objects in which the end looks for no garbage."""
    text: str


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a target that is this machine, with two runs whose status.json says all that a status shows."""
    folder = tmp_path_factory.mktemp("start")
    subprocess.run([sys.executable, str(MADE_RUNS), f"{folder}/orch", "2", "10"], check=True)
    for path in folder.glob("orch/runs/*/status.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "eta_s": 0.0}))
    path = folder / "inventory.yaml"
    payload = f"payloads:\n  dflash: {{folder: {folder}, command: [python3, train.py], devices: 8}}\n"
    path.write_text(f"hosts:\n  box: {{transport: local, root: {folder}, payload: dflash}}\n{payload}")
    orch("hosts", path)  # keeps what the file was read as
    return path


def orch(verb: str, inventory: Path) -> Said:
    argv = [sys.executable, "-c", RUN, verb, "-i", str(inventory)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stderr.splitlines()[-1])
    return Said(frozenset(told["modules"]), told["frozen"], done.stdout)


@pytest.mark.parametrize("verb", NOT_FOR)
def test_a_verb_imports_only_what_it_needs(verb: str, inventory: Path) -> None:
    said = orch(verb, inventory)
    assert SAYS[verb] in said.text  # it did its work
    assert f"orchestrator.cli.{verb}_command" in said.modules  # they are seen
    heavy = {name for name in NEVER if any(f"{one}.".startswith(f"{name}.") for one in said.modules)}
    assert sorted(heavy | (NOT_FOR[verb] & said.modules)) == []


@pytest.mark.parametrize(
    ("verb", "later"),
    [
        (
            "runs",
            {"orchestrator.operations.ledger", "orchestrator.ledger.runs", "orchestrator.probes.training", "sqlite3"},
        ),
        ("status", {"orchestrator.reports.status_facts", "orchestrator.ledger.records"}),
        ("diff", {"orchestrator.operations.comparison", "orchestrator.ledger.runs", "orchestrator.reports.diff"}),
    ],
)
def test_what_reads_the_answers_is_imported_while_the_connection_is_made(verb: str, later: set[str]) -> None:
    argv = [sys.executable, "-c", f"import sys, orchestrator.cli.{verb}_command; print(*sys.modules)"]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split())
    assert all(importlib.util.find_spec(name) for name in later)
    assert sorted(later & loaded) == []


def test_the_end_of_a_command_looks_for_no_garbage(inventory: Path) -> None:
    assert orch("hosts", inventory).frozen > 10_000


def test_a_connection_by_ssh_compiles_nothing_for_its_failures() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the guard's own imports
    argv = [sys.executable, "-c", CONNECT]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert done.stdout.splitlines() == ["[]", "[]"]


@pytest.mark.parametrize("name", sorted(set().union(*NOT_FOR.values())))
def test_what_is_not_to_be_imported_is_there(name: str) -> None:
    """A module that was renamed would be held by nobody."""
    assert importlib.util.find_spec(name) is not None

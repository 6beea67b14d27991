"""Which file that a payload's command reaches imports torch: what merely lies in the release needs none."""

import pytest

from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.imports import who_imports

TORCH = "import torch.nn as nn\n"


def asked(folder, files, *argv):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return told(folder, *argv)["by"]


def told(folder, *argv):
    params = {"folder": str(folder), "argv": list(argv), "module": "torch"}
    return who_imports(params, b"", Channel(1, lambda header, body: None))


@pytest.mark.parametrize(
    ("argv", "lacks"),
    [
        (["python", "trian.py", "--config", "c.py"], "trian.py"),
        (["torchrun", "--nproc", "2", "src/train.py"], "src/train.py"),
        (["python", "/nowhere/train.py"], "/nowhere/train.py"),
        (["python", "train.py", "--config", "c.py"], None),
        (["python", "-m", "train"], None),
        (["./run.sh"], None),
    ],
)
def test_the_script_that_is_not_there(tmp_path, argv, lacks):
    (tmp_path / "train.py").write_text("")
    assert told(tmp_path, *argv)["lacks"] == lacks


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("import lib", "lib.py"),
        ("from lib import x", "lib/__init__.py"),
        ("from lib import x", "lib/x.py"),
        ("def f():\n    import lib.a", "lib/a.py"),
        ("importlib.import_module('models.a')", "models/a.py"),
        ("Popen([sys.executable, 'workers/one.py'])", "workers/one.py"),
    ],
)
def test_what_the_script_reaches(tmp_path, text, file):
    files = {"train.py": text, "tools/export.py": TORCH, file: "from torch import nn"}
    assert asked(tmp_path, files, "torchrun", "--nproc", "2", "train.py") == file


def test_what_lies_beside_it_is_not_asked_for(tmp_path):
    files = {
        "train.py": "import json, mine\n",
        "mine.py": "import train",
        "tests/test_it.py": TORCH,
        "export.py": TORCH,
    }
    assert asked(tmp_path, files, "python", "train.py") is None


def test_a_module_its_neighbours_and_what_they_hold_back(tmp_path):
    files = {
        "app/__main__.py": "from . import core\nfrom .core import late",
        "app/core.py": "try:\n    import torch\nexcept ImportError:\n    pass\n",
        "app/late.py": TORCH,
    }
    assert asked(tmp_path, files, "python", "-m", "app") is None
    (tmp_path / "app/core.py").write_text("from .deep.down import x")
    assert asked(tmp_path, {"app/deep/down.py": TORCH}, "python", "-m", "app") == "app/deep/down.py"


def test_a_command_that_names_no_file_of_it_reaches_all(tmp_path):
    files = {"run.sh": "", "bad.py": "def (", "a.py": "", "z.py": TORCH}
    assert asked(tmp_path, files, "./run.sh") == "z.py"

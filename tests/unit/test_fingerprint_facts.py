"""What is read out of files for the fingerprint, and the fingerprint as facts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.far import driver, packages, variables
from orchestrator.ledger.fingerprint import parse_fingerprint

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x)
)
SECTIONS = ["python", "packages", "torch", "driver", "nvidia_smi", "variables", "limits", "machine", "cache", "release"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\n", "535.154.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x@y)\n", "580.65.06"),
        ("nothing of the kind", None),
        ("", None),
    ],
)
def test_driver(text: str, version: str | None) -> None:
    assert driver.parse_driver(text) == version


def test_packages_come_from_the_names_of_their_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, names in {
        first: [
            "torch-2.11.0+cu128.dist-info",
            "nvidia_cudnn_cu12-9.10.2.21.dist-info",
            "~orch-1.0.dist-info",
            "torch",
            "old_tool-1.5-py3.12.egg-info",
            "odd.dist-info",
        ],
        second: ["torch-2.9.0.dist-info", "Ruamel.YAML-0.18.dist-info"],
    }.items():
        for name in names:
            (folder / name).mkdir(parents=True)
    assert packages.packages([str(first), str(tmp_path / "no"), str(second)]) == {
        "torch": "2.11.0+cu128",
        "nvidia-cudnn-cu12": "9.10.2.21",
        "old-tool": "1.5",
        "ruamel-yaml": "0.18",
    }


def test_torch_is_read_and_never_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(
        "from typing import Optional\n__all__ = ['a']\n__version__ = '2.11.0+cu128'\ndebug = False\n"
        "cuda: Optional[str] = '12.8'\ngit_version = 'abc'\nhip: Optional[str] = None\nraise SystemExit('executed')\n"
    )
    facts = packages.torch_facts([str(tmp_path / "no"), str(tmp_path)])
    assert facts is not None
    assert (facts["version"], facts["cuda"], facts["git_version"], facts["hip"]) == (
        "2.11.0+cu128",
        "12.8",
        "abc",
        None,
    )
    assert packages.torch_facts([]) is None


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("TORCHINDUCTOR_CACHE_DIR", "/x", True),
        ("CUDA_VISIBLE_DEVICES", "0,1", True),
        ("LD_PRELOAD", "/x.so", True),
        ("PATH", "/bin", True),
        ("PATHOLOGY", "x", False),
        ("HF_HOME", "/hf", True),
        ("HF_TOKEN", "x", False),
        ("hf_token", "x", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("NCCL_X", "hf_abcdefghijklmnopqrst", False),
        ("HF_ENDPOINT", "https://u:p@hub", False),
        ("HF_ENDPOINT", "https://hub", True),
        ("AWS_REGION", "x", False),
        ("HF_ENDPOINT", "https://u:p/w@hub", False),
        ("HF_ENDPOINT", "https://hub/x?X-Amz-Signature=abc", False),
        ("HF_X", "api_key=123", False),
        ("ORCH_X", "ghp_abcdefghijklmnopqrst0123", False),
        ("NCCL_X", "AKIAIOSFODNN7EXAMPLE", False),
        ("HF_X", "eyJhbGciOiJIUzI1NiJ9.eyJz.abc", False),
        ("HF_PAT", "x", False),
        ("ORCH_PWD", "x", False),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512", True),
    ],
)
def test_which_values_are_kept(name: str, value: str, shown: bool) -> None:
    assert variables.may_be_shown(name, value) is shown


def test_of_a_command_line_what_may_be_a_secret_is_left_out() -> None:
    typed = ["python", "t.py", "--api-key=s3kr1t", "--hf-token", "s3kr1t", "--token=s3kr1t", "wandb.api_key=s3kr1t"]
    typed += ["hub_token=s3kr1t", "https://me:s3kr1t@host/a?b=c", "hf_abcdefghs3kr1t", "--password", "s3kr1t"]
    told = variables.without_secrets([*typed, "--secret", "--resume"])
    assert "s3kr1t" not in " ".join(told) and len(told) == len(typed) + 2
    assert told[2:5] == ["--api-key=[not shown]", "--hf-token", "[not shown]"] and told[-2:] == ["--secret", "--resume"]
    plain = ["t.py", "--eos-token", "</s>", "--max-tokens", "4096", "--tokenizer=a/b", "--key-heads=8", "lr=3e-4"]
    assert variables.without_secrets(plain) == plain


@given(st.dictionaries(st.sampled_from(["schema", "run_id", *SECTIONS]), JSON) | JSON)
def test_any_record_is_read(value: object) -> None:
    parse_fingerprint(value)


def test_an_older_or_newer_record_is_read_as_far_as_it_is_the_same() -> None:
    found = parse_fingerprint(
        {"schema": "orch.fingerprint/7", "machine": {"kernel": "6.8"}, "packages": {"a": "1", "b": 2}}
    )
    assert found is not None and (found.kernel, found.packages, found.gpus) == ("6.8", {"a": "1"}, None)
    assert parse_fingerprint({"broken": "/x"}) is None and parse_fingerprint(None) is None

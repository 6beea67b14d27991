"""What pip's, uv's and conda's output is read as: every file of tests/data/pip against tests/data/pip/expected.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.probes.pip_facts import PipPackage, normalise, whole_name
from orchestrator.probes.pip_output import read_pip_output

DATA = Path(__file__).resolve().parents[1] / "data" / "pip"
EXPECTED: dict[str, Any] = yaml.safe_load((DATA / "expected.yaml").read_text())


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_bytes().decode()


def told(package: PipPackage) -> str:
    """One package in one line, without its span."""
    words = [package.name or "-", package.version or "-"]
    words += [word for word in (package.change, package.source, "editable" * package.editable) if word]
    words += [f"at {package.location}"] if package.location else []
    words += [f"commit {package.commit}"] if package.commit else []
    words += [f"subdirectory {package.subdirectory}"] if package.subdirectory else []
    return " ".join(words)


def test_every_file_is_expected_to_be_something() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in DATA.glob("*.txt"))


@pytest.mark.parametrize("name", EXPECTED)
def test_packages(name: str) -> None:
    found = read_pip_output(text_of(name))
    assert [told(package) for package in found.packages] == EXPECTED[name].get("packages", [])
    assert found.said_fine == EXPECTED[name].get("said_fine", False)


@pytest.mark.parametrize("name", EXPECTED)
def test_troubles(name: str) -> None:
    found = read_pip_output(text_of(name)).troubles
    assert [f"{trouble.kind}: {trouble.text}" for trouble in found] == EXPECTED[name].get("troubles", [])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_span_holds_what_was_read(name: str) -> None:
    text = text_of(name)
    found = read_pip_output(text)
    for package in found.packages:
        part = text[slice(*package.span)]
        assert (package.name or (package.location or "")[2:]) in part, package
    for trouble in found.troubles:
        assert text[slice(*trouble.span)].strip(), trouble


@pytest.mark.parametrize("name", EXPECTED)
def test_what_stands_around_changes_nothing(name: str) -> None:
    """A prompt before, a shell's words after, and each line's end as Windows writes it."""
    text = text_of(name)
    around = "root@ct200:~# pip list\n\n" + text.rstrip("\n") + "\nroot@ct200:~# exit\nlogout\n"
    plain = [told(package) for package in read_pip_output(text).packages]
    assert [told(package) for package in read_pip_output(around).packages] == plain
    windows = text.replace("\r\n", "\n").replace("\n", "\r\n")
    assert [told(package) for package in read_pip_output(windows).packages] == plain


def test_lists_of_one_environment_agree_whoever_wrote_them() -> None:
    def versions(name: str) -> dict[str, str | None]:
        return {key: one.version for key, one in read_pip_output(text_of(name)).by_key.items()}

    freeze, uv_list = versions("02-freeze-editables-and-file-url"), versions("04-uv-list-normalised-names")
    assert freeze == uv_list and len(freeze) == 6


def test_what_was_removed_is_not_there() -> None:
    there = read_pip_output(text_of("39-upgrade-of-torch-swaps-builds")).by_key
    assert there["torch"].version == "2.11.0+cu130"
    assert "nvidia-cudnn-cu12" not in there and "nvidia-cudnn-cu13" in there
    assert list(read_pip_output("idna==3.20\nsix==1.17\n - idna==3.20\n").by_key) == ["six"]


@pytest.mark.parametrize(
    ("stump", "name"),
    [
        ("~orch", "torch"),
        ("-orch", "torch"),
        ("~-orch", "torch"),
        ("~vidia_cudnn_cu12", "nvidia-cudnn-cu12"),
        ("~umpy", "numpy"),
        ("~pandas", "pandas"),
        ("~ip", "pip"),
        ("~o-such-thing", None),
        ("-", None),
    ],
)
def test_the_letter_that_pip_replaced(stump: str, name: str | None) -> None:
    assert whole_name(stump) == name


def test_names_are_compared_as_the_index_does() -> None:
    assert normalise("Example.Pkg") == normalise("example__pkg") == normalise("example-.pkg") == "example-pkg"


LINE = """\
torch 2.3.1 == @ -e # ( ) - ~orch file:/// git+ssh://a@b/c.git@1 [ ] { } " : , WARNING: ERROR: Package Version ; \
------- Name: requires which is not installed. Successfully installed a-1 \x1b[1m \r \t \u2501 + (from ==1 >"""
WORDS = st.sampled_from(LINE.split(" "))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "  ", "\n"])), max_size=40))
def test_it_reads_anything(parts: list[tuple[str, str]]) -> None:
    text = "".join(word + gap for word, gap in parts)
    found = read_pip_output(text)
    for fact in (*found.packages, *found.troubles):
        assert 0 <= fact.span[0] <= fact.span[1] <= len(text)

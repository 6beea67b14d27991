"""What pip's, uv's and conda's output is read as, beyond the cases of tests/data/read/pip (test_read_cases.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.probes.pip_facts import normalise, whole_name
from orchestrator.probes.pip_output import read_pip_output
from tests.reading import unplaced

DATA = Path(__file__).resolve().parents[1] / "data" / "read" / "pip"
NAMES = sorted(path.stem for path in DATA.glob("*.txt"))


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_bytes().decode()


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_around_changes_nothing(name: str) -> None:
    """A prompt before, a shell's words after, and each line's end as Windows writes it."""
    text = text_of(name)
    around = "root@ct200:~# pip list\n\n" + text.rstrip("\n") + "\nroot@ct200:~# exit\nlogout\n"
    plain = read_pip_output(text).packages
    assert read_pip_output(around).packages == plain
    windows = text.replace("\r\n", "\n").replace("\n", "\r\n")
    assert read_pip_output(windows).packages == plain


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


def test_a_value_stands_where_it_says() -> None:
    text = text_of("02-freeze-editables-and-file-url")
    found = read_pip_output(text).by_key
    assert found["example-pkg"].spans["name"].of(text) == "Example.Pkg"
    assert found["example-pkg"].spans["location"].of(text) == "/srv/proj/ex"
    assert found["flash-attn"].spans["version"].of(text) == "2.8.3%2Bcu12torch2.8cxx11abitrue"
    assert found["uv"].spans["version"].of(text) == "0.13.9"


@pytest.mark.parametrize("written", ["setupétools", "setup\\u00e9tools"])
def test_a_json_name_stands_where_it_says_however_it_is_written(written: str) -> None:
    text = f'[{{"name":"{written}","version":"1.0"}}]'
    (package,) = read_pip_output(text).packages
    assert package.name == "setupétools"
    assert text[package.spans["name"].start : package.spans["name"].end] == written


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
    assert unplaced(read_pip_output(text), text) == []

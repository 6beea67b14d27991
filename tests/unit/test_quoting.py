"""An argv survives a POSIX shell byte for byte."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.transport.quoting import shell_command

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(words, min_size=1, max_size=5))
def test_quoting_is_undone_by_a_posix_parser(argv: list[str]) -> None:
    assert shlex.split(shell_command(argv)) == argv


@pytest.mark.parametrize("word", ["", " ", "$HOME", "a\nb", "*", "'", '"', "`id`", "-n", "ü€", "a;b", "\\", "!x"])
def test_a_real_shell_hands_the_word_on_unchanged(word: str) -> None:
    command = shell_command(["printf", "%s", word])
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout == word.encode()


def test_what_no_argv_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        shell_command(["a\0b"])
    with pytest.raises(ValueError, match="at least one word"):
        shell_command([])

"""Text from afar, made safe for a terminal.

Rule: what comes out holds no control character but newline and tab, and nothing that reorders or hides text.
"""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n)|$)"  # OSC and other strings: titles; within one line
    r"|\x1b[ -/]*[0-~]"  # two-character sequences
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one character
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SURROGATE = re.compile("[\ud800-\udfff]")


def plain_text(text: str) -> str:
    """Without escape sequences and control characters. Of a line that was overwritten (`\\r`), the last state.
    Bytes that were no UTF-8 become U+FFFD."""
    text = SEQUENCE.sub("", text.replace("\r\n", "\n"))
    text = "\n".join(_last_state(line) for line in text.split("\n"))
    return SURROGATE.sub("\ufffd", CONTROL.sub("", text))


def plain_lines(text: str) -> list[str]:
    """Like plain_text, but every state of an overwritten line is a line: nothing is lost."""
    text = SEQUENCE.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return SURROGATE.sub("\ufffd", CONTROL.sub("", text)).split("\n")


def one_line(text: str, limit: int = 200) -> str:
    """For a table cell or a sentence."""
    line = " ".join(plain_text(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def lowered(text: str) -> str:
    """In lower case, every character in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join([small if len(small := letter.lower()) == 1 else letter for letter in text])


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""

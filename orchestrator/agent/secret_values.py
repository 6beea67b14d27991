"""Values of this machine's environment that may be secrets, by the rule that the fingerprint has for a training's.

Rule: pure; it hides a value that stands in a text as it is, and nothing that was made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.agent.far.variables import SECRET, SECRET_VALUE

SHORTEST = 8
"""What is shorter stands in many a text by chance."""
FOLDERS = ("PWD", "OLDPWD")
"""To that rule they may be passwords."""


def masked(text: str, environment: Mapping[str, str]) -> str:
    """text with `[NAME]` where the value of a variable that may be a secret stood."""
    secret = {
        value: name
        for name, value in environment.items()
        if len(value) >= SHORTEST and name not in FOLDERS and (SECRET.search(name) or SECRET_VALUE.search(value))
    }
    for value in sorted(secret, key=len, reverse=True):
        text = text.replace(value, f"[{secret[value]}]")
    return text

"""`become: sudo`: the words in front, and what it means when sudo says no. PURE.

Rule: never a password prompt (-n); a refusal names the sudoers line that would allow it.
"""

from __future__ import annotations

import re

from orchestrator.errors import AuthError

WORDS = ("sudo", "-n", "--")

_CAUSES = (
    (r"a password is required|a terminal is required to read the password", "wants a password"),
    (r"must have a tty|sorry, you must have a tty", "wants a terminal (requiretty)"),
    (r"is not allowed to (?:execute|run)|may not run sudo|is not in the sudoers file", "does not allow this"),
    (r"sudo: (?:command )?not found|exec: sudo: not found|sudo: No such file", "is not installed"),
    (r"sudo: .{0,80}(?:parse error|syntax error)|no valid sudoers sources", "cannot read its sudoers files"),
    (r"^sudo: (?!.*command not found)", "failed"),
)


def sudo_refusal(stderr: str, *, label: str, user: str | None, program: str) -> AuthError | None:
    """The error when the text is sudo's own refusal; program: what the sudoers line must allow, or ALL."""
    for pattern, sentence in _CAUSES:
        if re.search(pattern, stderr, re.MULTILINE):
            login = user or "LOGIN"
            line = f"{login} ALL=(root) NOPASSWD: {program}"
            if "tty" in sentence or "terminal" in sentence:
                line = f"Defaults:{login} !requiretty"
            return AuthError(
                f"{label}: sudo {sentence}",
                evidence=stderr,
                way_out=f"on the host, with `visudo -f /etc/sudoers.d/orch`, write: {line}",
            )
    return None

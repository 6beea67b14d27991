"""What went wrong, the evidence, the way out; one exit code each.

Rule: a message a person reads is made here or from here; operations raise, the command line renders.
"""

from __future__ import annotations


class OrchError(Exception):
    """An expected failure.

    what: one sentence saying what happened.
    evidence: what was seen (stderr, values), shown indented; may be several lines.
    way_out: the next useful step, preferably a command line.
    """

    exit_code = 1

    def __init__(self, what: str, *, evidence: str = "", way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.evidence = evidence.rstrip()
        self.way_out = way_out

    def __str__(self) -> str:
        return self.what


class UsageError(OrchError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class InventoryError(OrchError):
    """The inventory (or another file a person writes) is wrong; nothing was done."""

    exit_code = 3


class UnreachableError(OrchError):
    """The host could not be reached: name, route, refused, time-out, banner. Nothing was executed; or the link was
    lost where we only looked."""

    exit_code = 4


class HostKeyError(OrchError):
    """The host's key is unknown or has changed. Nothing was executed."""

    exit_code = 5


class AuthError(OrchError):
    """The host was reached and refused the login (or sudo). Nothing was executed."""

    exit_code = 6


class ContainerError(OrchError):
    """The host answered; the container did not: missing, stopped, locked, elsewhere, or without what is needed."""

    exit_code = 7


class OutcomeUnknownError(OrchError):
    """The link was lost after work had begun: it may or may not have been done. Never retried blindly."""

    exit_code = 8

    def __init__(self, what: str, *, evidence: str = "", way_out: str = "") -> None:
        super().__init__(what, evidence=evidence, way_out=way_out or "orch status   to see what was done")


class BusyError(OrchError):
    """Somebody else holds it: a live run, a lease."""

    exit_code = 9


class PreflightError(OrchError):
    """The target is not fit for the work; nothing was started."""

    exit_code = 10


class RunFailedError(OrchError):
    """The training itself failed; its own exit code is in the text and in exit.json."""

    exit_code = 11


class DeadlineError(OrchError):
    """It did not happen within the time given, or can no longer happen. What still runs is said in the text."""

    exit_code = 12


class TransferError(OrchError):
    """Files could not be moved; the live state is as it was before."""

    exit_code = 13


class NotAsWantedError(OrchError):
    """It was done, and looked at again: the target is not as it was to be. What is not is said in the text."""

    exit_code = 14


EXIT_NOTHING_FOUND = 1
"""What was looked for is not there, and that is an answer: `orch logs --traceback` of a log without any."""

EXIT_DIFFERS = 1
"""`orch diff` found differences: an answer, as diff(1) gives it."""

EXIT_UNWELL = 1
"""`orch doctor` found something above info: an answer."""

EXIT_BUG = 70
EXIT_INTERRUPTED = 130

"""What the person sees: results on stdout, notes, progress and errors on stderr.

Imports wait until they are needed: `orch --help` passes through here.
Rule: all of it passes through `plain_text`, for any of it may have come from afar.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from orchestrator.errors import OrchError


def terminal_width() -> int | None:
    """Columns of the terminal that results go to. None: they go to a file or a pipe, which have no width."""
    import os

    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # no terminal; closed or replaced
        return None


class Output:
    def __init__(self, *, verbose: bool) -> None:
        self.verbose = verbose
        self.still_running = ""
        """Said after Ctrl-C: what goes on without us, and how to look at it."""

    def result(self, text: str) -> None:
        try:
            _print(text, sys.stdout)
        except OSError as error:
            raise unwritable(error) from error

    def note(self, text: str) -> None:
        try:
            _print(text, sys.stderr)
        except OSError:  # a full disk under it, or its reader left: no reason to leave the work half done
            silence(sys.stderr)

    def next_step(self, command: str) -> None:
        """The one line after each verb: the next useful command."""
        self.note(f"next: {command}")

    @property
    def trace(self) -> Callable[[str, Sequence[str]], None] | None:
        """For `-v`: shows one command line; None: nobody asked."""
        return self._show_argv if self.verbose else None

    def _show_argv(self, label: str, argv: Sequence[str]) -> None:
        import shlex

        self.note(f"+ {label}: {shlex.join(argv)}")

    def error(self, error: OrchError) -> None:
        from orchestrator.probes.text import plain_text

        lines = [f"orch: {error.what}"]
        lines += [f"    {line}" for line in plain_text(error.evidence).splitlines()]
        if error.way_out:
            lines += [f"  -> {line}" for line in error.way_out.splitlines()]
        self.note("\n".join(lines))

    def interrupted(self) -> None:
        self.note("\norch: interrupted. " + (self.still_running or "Nothing of this command runs on."))

    def bug(self) -> None:
        import traceback

        self.note(traceback.format_exc().rstrip())
        self.note("orch: this is a bug in orch, not in your training. What runs on the target was left as it is.")


def silence(stream: TextIO) -> None:
    """For the rest of the program: what waits in it to be written, too."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def unwritable(error: OSError) -> Exception:
    """What to raise where stdout takes no more (a full disk). A reader that left is no such thing: `main` ends well."""
    if isinstance(error, BrokenPipeError):
        return error
    from orchestrator.errors import TransferError

    silence(sys.stdout)
    return TransferError(
        "the answer could not be written to standard output",
        evidence=str(error),
        way_out="orch status   what was asked for may have been done all the same",
    )


def _print(text: str, stream: TextIO) -> None:
    from orchestrator.probes.text import plain_text

    print(plain_text(text), file=stream, flush=True)

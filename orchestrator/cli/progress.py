"""A progress bar for bytes on stderr; a few plain lines where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.agent.tree import Progress


@contextmanager
def transfer_progress(label: str, *, shown: bool = True) -> Iterator[Callable[[Progress], None]]:
    if not (shown and sys.stderr.isatty()):
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=None)

        def show(progress: Progress) -> None:
            bar.update(task, completed=progress.bytes_done, total=progress.bytes_total)

        yield show

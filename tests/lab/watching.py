"""An `orch status --watch --json` that a test reads while it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.lab.place import Place
from tests.waiting import eventually

Record = dict[str, Any]


class Watching:
    def __init__(self, place: Place, *words: str) -> None:
        self.records: list[Record] = []
        self._seen = 0
        self.process = place.popen(
            "status", "--watch", "--json", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.append(json.loads(line))

    def until(self, condition: Callable[[Record], Any], what: str, timeout_s: float = 30.0) -> Record:
        """The first report behind the last one that was found, of which it is true."""

        def look() -> Record | None:
            while self._seen < len(self.records):
                record = self.records[self._seen]
                self._seen += 1
                if condition(record):
                    return record
            assert self.process.poll() is None, f"the watch ended with {self.process.returncode}: {self.said()}"
            return None

        found = eventually(look, f"{what}", timeout_s)
        assert found is not None
        return found

    def end(self, number: int = signal.SIGINT) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(5)
        return code

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode(errors="replace")


@contextmanager
def watching(place: Place, *words: str) -> Iterator[Watching]:
    watch = Watching(place, *words)
    try:
        watch.until(lambda record: True, "the first report")
        yield watch
    finally:
        if watch.process.poll() is None:
            watch.process.kill()
        watch.process.wait()

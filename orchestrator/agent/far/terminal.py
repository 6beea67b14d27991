"""Copies a growing log to the terminal in which the wrapper runs, if there is one.

Rule: the copy may be late, cut or dead (pane closed, server gone, terminal stuck); the training never notices.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

POLL_S = 0.1
CHUNK_BYTES = 64 * 1024
MAX_LAG_BYTES = 4 * 1024 * 1024
"""Further behind than this, the copy skips ahead and says so."""
DRAIN_S = 2.0


class LogCopy:
    def __init__(self, path: str, terminal: int = 1) -> None:
        self._path = path
        self._terminal = terminal
        self._wanted = os.isatty(terminal)
        self._text = ""
        self._finish = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="log-copy", daemon=True)

    def start(self) -> None:
        if self._wanted:
            self._thread.start()

    def last_line(self, text: str) -> None:
        """Shows what is left of the log, then the text. Takes DRAIN_S seconds at most."""
        if not self._wanted:
            return
        self._text = "\n[orch] %s\n" % text
        self._finish.set()
        if not self._thread.ident:
            self._thread.start()
        self._thread.join(DRAIN_S)

    def _copy(self) -> None:
        with contextlib.suppress(OSError), open(self._path, "rb", buffering=0) as stream:
            while True:
                finishing = self._finish.is_set()
                self._skip_if_late(stream.fileno())
                data = stream.read(CHUNK_BYTES)
                if data:
                    self._show(data)
                elif finishing:
                    break
                else:
                    self._finish.wait(POLL_S)
        with contextlib.suppress(OSError):
            self._show(self._text.encode("utf-8", "replace"))

    def _skip_if_late(self, handle: int) -> None:
        behind = os.fstat(handle).st_size - os.lseek(handle, 0, os.SEEK_CUR)
        if behind > MAX_LAG_BYTES:
            os.lseek(handle, -CHUNK_BYTES, os.SEEK_END)
            self._show(b"\n[orch] ... %d bytes not shown here; all of it is in run.log\n" % (behind - CHUNK_BYTES))

    def _show(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._terminal, view) :]
            except BlockingIOError:
                time.sleep(POLL_S)

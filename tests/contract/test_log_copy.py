"""The copy of the log in a terminal: late, cut or dead, but never in the way."""

import os
import threading

from orchestrator.agent.far import terminal


class Screen:
    """A pseudo-terminal that is read, or not."""

    def __init__(self):
        self.master, self.slave = os.openpty()
        self.seen = b""
        self.thread = threading.Thread(target=self._read, daemon=True)

    def read(self):
        self.thread.start()
        return self

    def _read(self):
        try:
            while True:
                self.seen += os.read(self.master, 65536)
        except OSError:
            return

    def close(self):
        os.close(self.slave)
        if self.thread.ident:
            self.thread.join(10)
        os.close(self.master)
        return self.seen.replace(b"\r\n", b"\n")


def test_everything_is_shown_and_the_last_line(tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(b"one\n")
    screen = Screen().read()
    copy = terminal.LogCopy(str(log), screen.slave)
    copy.start()
    with log.open("ab") as stream:
        stream.write(b"two, without an end")
    copy.last_line("over")
    assert screen.close() == b"one\ntwo, without an end\n[orch] over\n"


def test_far_behind_it_skips_and_says_so(tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(b"x" * (terminal.MAX_LAG_BYTES + terminal.CHUNK_BYTES) + b"the end\n")
    screen = Screen().read()
    copy = terminal.LogCopy(str(log), screen.slave)
    copy.start()
    copy.last_line("over")
    seen = screen.close()
    assert b"bytes not shown here; all of it is in run.log" in seen and seen.endswith(b"the end\n\n[orch] over\n")
    assert len(seen) < 2 * terminal.CHUNK_BYTES


def test_a_terminal_that_takes_nothing_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "DRAIN_S", 0.2)
    log = tmp_path / "run.log"
    log.write_bytes(b"x" * 1_000_000)
    screen = Screen()
    copy = terminal.LogCopy(str(log), screen.slave)
    copy.start()
    copy.last_line("over")  # comes back
    os.close(screen.master)  # and the thread, stuck in its write until now, ends
    copy._thread.join(10)
    assert not copy._thread.is_alive()
    os.close(screen.slave)


def test_a_terminal_that_is_gone_is_no_error(tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(b"x\n")
    screen = Screen()
    copy = terminal.LogCopy(str(log), screen.slave)
    os.close(screen.master)
    copy.start()
    copy.last_line("over")
    os.close(screen.slave)

"""Starts agents on this machine, as a transport would, over a plain local process that a test can cut."""

import asyncio
import os
import shutil
import signal
import sys

from orchestrator.errors import OutcomeUnknownError
from orchestrator.transport.protocol import ExitStatus


class LocalProcess:
    def __init__(self, process):
        self._process = process
        self.pid = process.pid
        self.aborted = False

    async def write(self, data):
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def write_eof(self):
        self._process.stdin.write_eof()

    async def read(self, limit=65536):
        return await self._process.stdout.read(limit)

    async def read_stderr(self, limit=65536):
        return await self._process.stderr.read(limit)

    async def wait(self):
        if self.aborted:
            raise OutcomeUnknownError("cut by the test")
        code = await self._process.wait()
        return ExitStatus(code if code >= 0 else 128 - code)

    async def abort(self):
        self.aborted = True
        self._process.stdin.close()
        if self._process.returncode is None:
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                os.killpg(self.pid, signal.SIGKILL)
                await self._process.wait()
        self._process._transport.close()


class LocalStarter:
    """Keeps what it started, so that a test can kill or inspect it."""

    label = "here"

    def __init__(self):
        self.processes = []

    async def start(self, argv):
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            start_new_session=True,
        )
        self.processes.append(LocalProcess(process))
        return self.processes[-1]


def interpreters():
    """Every Python that these tests can find, named in full: this one, the machine's, each version on PATH."""
    names = [sys.executable, "/usr/bin/python3", *(f"python3.{minor}" for minor in range(8, 14))]
    names += os.environ.get("ORCH_TEST_PYTHONS", "").split()
    found = {}
    for name in names:
        path = shutil.which(name)
        if path and "/shims/" not in path:  # a version manager's shim is not an interpreter
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())

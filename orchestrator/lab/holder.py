"""A process of the lab that uses GPUs: doubles/hold_gpu.py, started and ended by a test.

Rule: it ends when its stdin does, so none outlives the process that started it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.lab.records import LabError

END_S = 10.0


@dataclass(frozen=True)
class GpuHolder:
    host_pid: int
    """As the lab's host (in the embedded lab: this machine) numbers it."""
    pid: int
    """As the container that it runs in numbers it."""
    starter: subprocess.Popen[bytes]
    """Ends with the holder."""

    @classmethod
    def start(cls, argv: Sequence[str], environment: Mapping[str, str]) -> GpuHolder:
        """Returns once the GPUs are held. Raises LabError."""
        pipe = subprocess.PIPE
        starter = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/")
        assert starter.stdout is not None
        words = starter.stdout.readline().split()
        if len(words) != 2:
            said = starter.communicate()[1].decode(errors="replace")
            raise LabError("no process of the lab holds the GPU", evidence=said)
        return cls(host_pid=int(words[0]), pid=int(words[1]), starter=starter)

    def alive(self) -> bool:
        return self.starter.poll() is None

    def end(self) -> None:
        """Also after it was killed."""
        for stream in (self.starter.stdin, self.starter.stdout, self.starter.stderr):
            if stream is not None:
                stream.close()
        self.starter.wait(END_S)

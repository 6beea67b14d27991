"""Op trace: tells the controller of every program that this agent starts from now on, for `orch -v`.

Rule: argv only; environments may hold secrets and are never told.
"""

from __future__ import annotations

import os
import queue
import sys
from typing import Any, Dict, List, Tuple

from .channel import Channel

POLL_S = 0.2


def trace(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """Event {} at once, then {"argv": [...]} for each start. Ends only when cancelled."""
    started: "queue.Queue[List[str]]" = queue.Queue()

    def hook(event: str, arguments: Tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            started.put([os.fsdecode(word) for word in arguments[1]])

    sys.addaudithook(hook)
    channel.emit({})
    while True:
        channel.check()
        try:
            argv = started.get(timeout=POLL_S)
        except queue.Empty:
            continue
        channel.emit({"argv": argv})

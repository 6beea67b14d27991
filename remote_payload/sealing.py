"""What was compiled, and that nothing falls back.

Rule: what is compiled is compiled before training begins, by one thread. From then on the place is sealed: code meant
to run compiled that runs eagerly raises, and every compilation that happens all the same is counted.
"""

from __future__ import annotations

import threading


class EagerFallback(RuntimeError):
    """Code that is meant to run compiled ran as plain Python: many times slower, and with far more memory."""


_lock = threading.Lock()
_fallbacks = 0


def eager_fallback(what: str) -> None:
    """Counts it, then raises EagerFallback."""
    global _fallbacks
    with _lock:
        _fallbacks += 1
    raise EagerFallback(
        f"{what} ran uncompiled in thread {threading.current_thread().name}: torch gave its compiled form up "
        f"(recompile limit, or a trace in another thread)"
    )


def fallbacks() -> int:
    return _fallbacks

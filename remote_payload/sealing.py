"""What was compiled, and that nothing falls back.

Rule: what is compiled is compiled before training begins, by one thread. From then on the place is sealed: code meant
to run compiled that runs eagerly raises, and every compilation that happens all the same is counted.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from typing import Any, Dict, Iterator, NoReturn, Optional

import fx_guard


class EagerFallback(RuntimeError):
    """Code that is meant to run compiled ran as plain Python: many times slower, and with far more memory."""


class Recompiled(RuntimeError):
    """Something was compiled after the place was sealed, and `compile.strict` forbids it."""


@dataclass(frozen=True)
class CompileCounts:
    compiles: int
    """Graphs, of this process."""
    cache_hits: int
    cache_misses: int
    """Of inductor's cache of compiled graphs on disk; forward and backward count apart."""
    fallbacks: int
    recompiles: int
    """Compiled after sealing."""
    aot_cache_hits: int = 0
    aot_cache_misses: int = 0
    """Of autograd's cache: forward and backward of a graph together."""
    cache_bypasses: int = 0
    """Graphs, of either cache, that torch will not keep: each start compiles them anew."""
    tracing_stuck: int = 0
    """1: torch.fx's tracing flag is set and nothing traces, so that every call runs uncompiled."""


_lock = threading.Lock()
_fallbacks = 0


def eager_fallback(what: str, cause: Optional[BaseException] = None) -> NoReturn:
    """Counts it, then raises EagerFallback."""
    global _fallbacks
    with _lock:
        _fallbacks += 1
    raise EagerFallback(
        f"{what} ran uncompiled in thread {threading.current_thread().name}: torch gave its compiled form up "
        f"(recompile limit, or a trace in another thread)"
    ) from cause


@contextlib.contextmanager
def compiled_or_fallback(what: str) -> Iterator[None]:
    """A call of compiled code. What torch raises instead of running it eagerly counts as a fallback, too."""
    try:
        yield
    except Exception as error:  # dynamo's have no common base
        from_dynamo = type(error).__module__.startswith("torch._dynamo")
        if from_dynamo or "FX to symbolically trace" in str(error):
            eager_fallback(what, error)
        raise


def fallbacks() -> int:
    return _fallbacks


def _counters() -> Dict[str, Any]:
    """Empty in a process that has compiled nothing: asking must not cost the import of the compiler."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters if dynamo is not None else {}


def _counted(group: str, name: str) -> int:
    return int(_counters().get(group, {}).get(name, 0))


class Seal:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._known: Optional[int] = None
        """Graphs there were when it was closed or last looked at."""
        self._recompiles = 0

    def close(self) -> None:
        self._known = _counted("stats", "unique_graphs")

    def look(self) -> int:
        """How many graphs were compiled since the last look. Raises Recompiled when strict.

        Whoever compiles on purpose (evaluation) closes the seal anew afterwards.
        """
        if self._known is None:
            return 0
        graphs = _counted("stats", "unique_graphs")
        fresh, self._known = graphs - self._known, graphs
        self._recompiles += fresh
        if fresh and self._strict:
            raise Recompiled(
                f"{fresh} graph(s) were compiled after all planned ones were: a shape, device or setting is not in "
                f"the plan (compile.strict)"
            )
        return fresh

    def counts(self) -> CompileCounts:
        return CompileCounts(
            compiles=_counted("stats", "unique_graphs"),
            cache_hits=_counted("inductor", "fxgraph_cache_hit"),
            cache_misses=_counted("inductor", "fxgraph_cache_miss"),
            fallbacks=fallbacks(),
            recompiles=self._recompiles,
            aot_cache_hits=_counted("aot_autograd", "autograd_cache_hit"),
            aot_cache_misses=_counted("aot_autograd", "autograd_cache_miss"),
            cache_bypasses=_counted("inductor", "fxgraph_cache_bypass")
            + _counted("aot_autograd", "autograd_cache_bypass"),
            tracing_stuck=int(fx_guard.flag_is_stuck()),
        )


def set_recompile_limit(limit: int) -> None:
    """For this thread, and where torch keeps settings per thread (2.12 on) as every other thread's default, too.

    The backward pass of CUDA runs in a thread of torch's own, which nobody else can set anything in. Past the limit
    torch raises instead of running eagerly.
    """
    import torch._dynamo

    config = torch._dynamo.config
    values = {"recompile_limit": limit, "accumulated_recompile_limit": 4 * limit, "fail_on_recompile_limit_hit": True}
    for name, value in values.items():
        config._config[name].default = value
        setattr(config, name, value)

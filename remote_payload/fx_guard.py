"""A guard against torch.fx's process-wide tracing state, for several threads that call compiled code.

Rule: needed below torch 2.14 only, and only where one process has several threads; it reaches into private names of
torch, so `TESTED` says on which versions it was seen to work.

The fault (pytorch issue 126024; line numbers of torch 2.11.0): `fx/_symbolic_trace.py:41` keeps "a trace is going on"
in one global for all threads. Every call of a compiled function looks at it (`_dynamo/eval_frame.py:985`), also when
nothing is left to compile. While one thread compiles, another's call raises "Detected that you are using FX to
symbolically trace a dynamo-optimized function", or, with that error turned off, runs eagerly. Two traces that overlap
save and restore the global across one another and can leave it set for good: then EVERY call runs eagerly, without an
error. `Tracer.trace` also patches nn.Module.__call__ for all threads, whose calls then fail with "NameError: module is
not installed as a submodule".
Seen on one H200, torch 2.11.0+cu130, three drafter threads and two target threads, cold cache: 2,563 eager calls, 30
against 192 thousand tokens/s, nearly five times the memory. With this guard and one-threaded compilation: none.

Upstream: the flag is thread-local from 2.14 (PR 168999). The module patches are not (PR 187589, not in 2.15.0).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
import torch.fx._symbolic_trace as symbolic_trace

TESTED = ("2.11", "2.13")
STUCK = (
    "torch's tracing flag is stuck, as two traces overlapped: every compiled call runs uncompiled from now on, many "
    "times slower, and only a new start ends it"
)
_STATE = "_orch_tracing_here"


class _TracingHere(threading.local):
    flag = False


_undo: Dict[str, Any] = {}


def needed() -> bool:
    return hasattr(symbolic_trace, "_is_fx_tracing_flag")


def untested(version: str) -> Optional[str]:
    """A sentence when this torch is none of those the trainer was seen to work on: `2.12.1+cu130`."""
    if ".".join(version.split(".")[:2]) in TESTED:
        return None
    return (
        f"torch {version} is none of those this trainer was tested on ({', '.join(TESTED)}): its guard reaches into "
        f"private names of torch; look at `compiled` in status.json, and at the rate, before trusting a long run to it"
    )


def installed() -> bool:
    return bool(_undo)


def flag_is_stuck() -> bool:
    """The state of a trace has outlived the traces that made it. A compilation that is going on is told from that; ask
    while no thread runs flex_attention uncompiled: that traces, too."""
    lock = getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)
    if lock is None:  # nothing was compiled yet, or a torch that needs no guard
        return _left_behind()
    if not lock.acquire(blocking=False):
        return False
    try:
        return _left_behind()
    finally:
        lock.release()


def _left_behind() -> bool:
    patched = torch.nn.Module.__call__ is not symbolic_trace._orig_module_call
    return patched or bool(getattr(symbolic_trace, "_is_fx_tracing_flag", False))


def install() -> bool:
    """Before the first thread starts. False where it is not needed; a second call changes nothing."""
    if not needed() or installed():
        return installed()
    import torch._dynamo.convert_frame as convert_frame
    import torch._higher_order_ops.utils as higher_order

    state = _TracingHere()
    setattr(symbolic_trace, _STATE, state)
    # The function objects are kept and only their code is swapped: what was imported by name, and the closures of
    # wrappers that exist already, see it, too.
    for function, code in (
        (symbolic_trace.is_fx_tracing, _is_tracing),
        (symbolic_trace.is_fx_symbolic_tracing, _is_symbolic),
    ):
        _undo[function.__name__] = (function, function.__code__)
        function.__code__ = code.__code__
    lock = convert_frame.compile_lock
    for owner, name, replacement in (
        (symbolic_trace.Tracer, "trace", _trace_alone(symbolic_trace.Tracer.trace, state, lock)),
        (symbolic_trace._Patcher, "patch_method", _patch_here(symbolic_trace._Patcher.patch_method)),
        (higher_order, "_set_compilation_env", _hide_here(higher_order._set_compilation_env, state, lock)),
    ):
        _undo[name] = (owner, getattr(owner, name))
        setattr(owner, name, replacement)
    return True


def uninstall() -> None:
    for name, (owner, original) in _undo.items():
        if name in ("is_fx_tracing", "is_fx_symbolic_tracing"):
            owner.__code__ = original
        else:
            setattr(owner, name, original)
    _undo.clear()


# The two below run with the globals of torch.fx._symbolic_trace.
def _is_tracing() -> bool:
    return _orch_tracing_here.flag  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _is_symbolic() -> bool:
    return _orch_tracing_here.flag and not torch.compiler.is_compiling()  # type: ignore[name-defined]  # noqa: F821


def _trace_alone(trace: Callable[..., Any], state: _TracingHere, lock: Any) -> Callable[..., Any]:
    """The lock is dynamo's own and reentrant: whoever compiles holds it already."""

    @functools.wraps(trace)
    def traced(self: Any, *arguments: Any, **named: Any) -> Any:
        with lock, _flag(state, True):
            return trace(self, *arguments, **named)

    return traced


def _hide_here(environment: Callable[[], Any], state: _TracingHere, lock: Any) -> Callable[[], Any]:
    """flex_attention run eagerly hides the flag from dynamo while it traces: now only its own thread's."""

    @contextlib.contextmanager
    def hidden() -> Iterator[None]:
        with lock, _flag(state, False), environment():
            yield

    return hidden


@contextlib.contextmanager
def _flag(state: _TracingHere, value: bool) -> Iterator[None]:
    before, state.flag = state.flag, value
    try:
        yield
    finally:
        state.flag = before


def _patch_here(patch_method: Callable[..., Any]) -> Callable[..., Any]:
    """What Tracer.trace puts in place of nn.Module's methods acts in the thread that traces, and in no other."""
    originals: Tuple[Tuple[str, Any], ...] = (
        ("__call__", symbolic_trace._orig_module_call),
        ("__getattr__", symbolic_trace._orig_module_getattr),
    )

    @functools.wraps(patch_method)
    def patched(self: Any, cls: type, name: str, new: Callable[..., Any], deduplicate: bool = True) -> Any:
        original = dict(originals).get(name)
        if cls is not torch.nn.Module or original is None:
            return patch_method(self, cls, name, new, deduplicate)
        tracer = threading.get_ident()

        @functools.wraps(original)
        def dispatch(module: Any, *arguments: Any, **named: Any) -> Any:
            chosen = new if threading.get_ident() == tracer else original
            return chosen(module, *arguments, **named)

        return patch_method(self, cls, name, dispatch, deduplicate)

    return patched

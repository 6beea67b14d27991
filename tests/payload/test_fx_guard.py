"""The guard's mechanics: two threads are brought to the very interleavings that go wrong, by events and not by luck."""

from __future__ import annotations

import threading

import fx_guard
import pytest
import torch
import torch.fx._symbolic_trace as symbolic_trace
from sealing import Seal

DEADLINE_S = 60

pytestmark = pytest.mark.skipif(not fx_guard.needed(), reason="this torch keeps the flag in each thread by itself")


@pytest.fixture
def guard():
    assert fx_guard.install() is True
    yield
    fx_guard.uninstall()
    assert not fx_guard.flag_is_stuck()


@pytest.fixture
def mended():
    """Puts back by hand what a test broke on purpose."""
    yield
    symbolic_trace.CURRENT_PATCHER = None
    symbolic_trace._is_fx_tracing_flag = False
    torch.nn.Module.__call__ = symbolic_trace._orig_module_call
    torch.nn.Module.__getattr__ = symbolic_trace._orig_module_getattr


class Tracing(threading.Thread):
    """Traces a function that stays inside until it is let out."""

    def __init__(self):
        super().__init__(daemon=True)
        self.inside, self.go_on, self.seen = threading.Event(), threading.Event(), []
        self.error = None

    def run(self):
        def traced(x):
            self.seen.append(symbolic_trace.is_fx_symbolic_tracing())
            self.inside.set()
            assert self.go_on.wait(DEADLINE_S)
            return x + 1

        try:
            torch.fx.symbolic_trace(traced)
        except AssertionError as error:
            self.error = error

    def end(self):
        self.go_on.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()
        return self.error


def test_without_the_guard_overlapping_traces_leave_the_state_behind(mended):
    first, second = Tracing(), Tracing()
    first.start()
    assert first.inside.wait(DEADLINE_S)
    assert symbolic_trace.is_fx_symbolic_tracing(), "another thread's trace shows here"
    second.start()
    assert second.inside.wait(DEADLINE_S)
    first.end()
    second.end()
    assert symbolic_trace.is_fx_symbolic_tracing()
    assert fx_guard.flag_is_stuck()
    assert Seal(strict=False).counts().tracing_stuck == 1


def test_a_compilation_that_goes_on_is_no_stuck_flag(mended):
    import torch._dynamo.convert_frame as convert_frame

    inside, go_on = threading.Event(), threading.Event()

    def compiles():
        with convert_frame.compile_lock:
            symbolic_trace._is_fx_tracing_flag = True
            inside.set()
            assert go_on.wait(DEADLINE_S)

    compiling = threading.Thread(target=compiles, daemon=True)
    compiling.start()
    assert inside.wait(DEADLINE_S)
    assert not fx_guard.flag_is_stuck()
    go_on.set()
    compiling.join(DEADLINE_S)
    assert fx_guard.flag_is_stuck(), "the compilation is over, and the flag is set"


def test_a_trace_is_seen_by_its_own_thread_only(guard):
    kept = symbolic_trace.is_fx_symbolic_tracing
    tracing = Tracing()
    tracing.start()
    assert tracing.inside.wait(DEADLINE_S)
    assert kept() is False
    assert torch.fx._symbolic_trace.is_fx_tracing() is False
    assert tracing.end() is None
    assert tracing.seen == [True]
    assert kept() is False


def test_a_second_trace_waits_for_the_first_to_end(guard):
    first, second = Tracing(), Tracing()
    second.go_on.set()
    first.start()
    assert first.inside.wait(DEADLINE_S)
    second.start()
    import torch._dynamo.convert_frame as convert_frame

    assert not convert_frame.compile_lock.acquire(blocking=False), "the first trace holds dynamo's own lock"
    assert not second.inside.is_set()
    assert (first.end(), second.end()) == (None, None)
    assert second.seen == [True]
    assert not fx_guard.flag_is_stuck()


def test_a_module_called_in_another_thread_is_not_traced(guard):
    module, states = torch.nn.Linear(2, 2), torch.ones(1, 2)
    tracing = Tracing()
    tracing.start()
    assert tracing.inside.wait(DEADLINE_S)
    assert torch.nn.Module.__call__ is not symbolic_trace._orig_module_call, "patched, for all threads"
    out = module(states)
    assert tracing.end() is None
    assert torch.equal(out, module(states))
    assert torch.nn.Module.__call__ is symbolic_trace._orig_module_call


def test_without_the_guard_such_a_call_fails(mended):
    module = torch.nn.Linear(2, 2)
    tracing = Tracing()
    tracing.start()
    assert tracing.inside.wait(DEADLINE_S)
    with pytest.raises(NameError, match="module is not installed as a submodule"):
        module(torch.ones(1, 2))
    assert tracing.end() is None


def test_tracing_in_the_guarded_thread_itself_still_works(guard):
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x) + x

    graph = torch.fx.symbolic_trace(Sum())
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "call_function", "output"]


def test_uninstalling_puts_torch_back():
    def parts():
        import torch._higher_order_ops.utils as higher_order

        return (
            symbolic_trace.is_fx_symbolic_tracing.__code__,
            symbolic_trace.is_fx_tracing.__code__,
            symbolic_trace.Tracer.trace,
            symbolic_trace._Patcher.patch_method,
            higher_order._set_compilation_env,
        )

    before = parts()
    fx_guard.install()
    fx_guard.install()
    assert all(one is not other for one, other in zip(before, parts(), strict=True))
    fx_guard.uninstall()
    assert parts() == before


def test_the_guard_hides_an_eager_flex_attentions_flag_in_its_own_thread_only(guard):
    import torch._higher_order_ops.utils as higher_order

    tracing = Tracing()

    def traced(x):
        with higher_order._set_compilation_env():
            tracing.seen.append(symbolic_trace.is_fx_symbolic_tracing())
        tracing.seen.append(symbolic_trace.is_fx_symbolic_tracing())
        return x

    torch.fx.symbolic_trace(traced)
    assert tracing.seen == [False, True]

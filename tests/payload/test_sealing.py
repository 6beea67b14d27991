"""The plan, its limit in every thread, and that nothing is compiled or falls back unseen."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import attention
import loop
import pytest
import sealing
import torch
from attention import Layout, attend, dense_mask, tile_mask
from plan import bucket_of, compile_plan, length_buckets
from sealing import EagerFallback, Recompiled, Seal, compiled_or_fallback, fallbacks, set_recompile_limit
from stopping import StopAsked, StopRequest
from tiny import tiny_config
from torch._dynamo.utils import counters
from workers import Crew


@pytest.fixture
def limit_kept():
    names = ("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit")
    entries = torch._dynamo.config._config
    before = {name: entries[name].default for name in names}
    yield
    for name, value in before.items():
        entries[name].default = value
        setattr(torch._dynamo.config, name, value)
    torch._dynamo.reset()


def test_lengths_are_few_and_the_last_holds_the_longest():
    assert length_buckets(1000, 1) == [1000]
    assert length_buckets(1000, 3) == [334, 667, 1000]
    assert length_buckets(2, 4) == [1, 2]
    assert [bucket_of(length, [334, 667, 1000]) for length in (1, 334, 335, 1000, 1200)] == [334, 334, 667, 1000, 1000]


def test_the_plan_names_every_length_on_every_gpu_once_and_nothing_on_a_cpu():
    config = tiny_config(train__length_buckets=3)
    plan = compile_plan(config, 48, ["cuda:5", "cuda:6", "cuda:7", "cuda:5", "cpu"])
    assert [(item.device, item.context) for item in plan.items] == [
        (device, length) for device in ("cuda:5", "cuda:6", "cuda:7") for length in (16, 32, 48)
    ]
    assert {(item.rows, item.queries, item.grad) for item in plan.items} == {(2, 4 * 8, True)}
    assert not plan.dynamic
    assert plan.recompile_limit > 9 > 8, "torch's own limit is 8 for all devices together"
    # Forward and backward of each length.
    assert plan.least_graphs == {"cuda:5": 6, "cuda:6": 6, "cuda:7": 6}
    assert compile_plan(config, 48, ["cpu"]).items == ()


def test_past_four_lengths_one_kernel_serves_all():
    plan = compile_plan(tiny_config(train__length_buckets=5), 50, ["cuda:0"])
    assert plan.dynamic
    assert [item.context for item in plan.items] == [10, 50]
    assert plan.least_graphs == {"cuda:0": 2}


def test_the_limit_holds_in_every_thread(limit_kept):
    set_recompile_limit(77)
    seen = []
    thread = threading.Thread(
        target=lambda: seen.append(
            (torch._dynamo.config.recompile_limit, torch._dynamo.config.fail_on_recompile_limit_hit)
        )
    )
    thread.start()
    thread.join()
    assert seen == [(77, True)]
    assert torch._dynamo.config.recompile_limit == 77


def attend_compiled(compiled, context, seed=0):
    chance = torch.Generator().manual_seed(seed)
    anchors = torch.randint(0, context, (1, 4), generator=chance).sort(dim=1).values
    layout = Layout(anchors, anchors // 2, torch.rand(1, 4, generator=chance) > 0.2, context, 16)
    query, key, value = (torch.randn(1, 2, size, 16, generator=chance) for size in (64, context + 64, context + 64))
    with torch.no_grad(), compiled_or_fallback("flex_attention"):
        torch.testing.assert_close(
            compiled(query, key, value, tile_mask(layout)), attend(query, key, value, dense_mask(layout))
        )


@pytest.mark.parametrize(("dynamic", "graphs"), [(False, 3), (True, 1)])
def test_a_length_is_compiled_once_whatever_the_layout(dynamic, graphs, limit_kept):
    """The tracing is the real one; its backend runs the graph as it is, all a CPU needs for counting."""
    torch._dynamo.reset()
    compiled = torch.compile(attention._tiled, backend="eager", dynamic=dynamic, fullgraph=True)
    before = counters["stats"]["unique_graphs"]
    for context in (200, 300, 450, 200):
        for seed in range(2):
            attend_compiled(compiled, context, seed)
    assert counters["stats"]["unique_graphs"] - before == graphs


def test_past_the_limit_torch_stops_instead_of_crawling(limit_kept):
    torch._dynamo.reset()
    set_recompile_limit(1)
    compiled = torch.compile(attention._tiled, backend="eager", dynamic=False, fullgraph=True)
    attend_compiled(compiled, 200)
    before = fallbacks()
    with pytest.raises(EagerFallback, match="flex_attention ran uncompiled"):
        attend_compiled(compiled, 300)
    assert fallbacks() == before + 1


def test_a_call_refused_because_another_thread_traces_counts_as_a_fallback():
    before = fallbacks()
    with pytest.raises(EagerFallback), compiled_or_fallback("it"):
        raise RuntimeError("Detected that you are using FX to symbolically trace a dynamo-optimized function.")
    with pytest.raises(RuntimeError, match="another matter"), compiled_or_fallback("it"):
        raise RuntimeError("another matter")
    assert fallbacks() == before + 1


def test_what_is_compiled_after_sealing_is_counted_and_when_strict_stops(monkeypatch):
    graphs = {"stats": {"unique_graphs": 3}}
    monkeypatch.setattr(sealing, "_counters", lambda: graphs)
    lenient, strict = Seal(strict=False), Seal(strict=True)
    assert lenient.look() == 0, "not closed yet"
    lenient.close()
    strict.close()
    assert (lenient.look(), strict.look()) == (0, 0)
    graphs["stats"]["unique_graphs"] = 5
    assert lenient.look() == 2
    assert lenient.look() == 0
    assert lenient.counts().recompiles == 2
    with pytest.raises(Recompiled, match="2 graph"):
        strict.look()


def test_a_stop_is_obeyed_between_two_graphs(monkeypatch):
    plan, heard = compile_plan(tiny_config(train__length_buckets=3), 48, ["cuda:0"]), []

    def compile_all(plan, drafters, ends, mask_id, config, on_item):
        for number, item in enumerate(plan.items, start=1):
            on_item(number, item)
            stop.asked = number == 2

    stop = StopRequest()
    progress = SimpleNamespace(compiling=lambda done, total: heard.append((done, total)), say=lambda text: None)
    monkeypatch.setattr(loop, "compile_all", compile_all)
    nobody = Crew([], 1)
    prepared = SimpleNamespace(vocabulary=SimpleNamespace(mask_id=0))
    with pytest.raises(StopAsked):
        loop.compile_before_workers(plan, nobody, prepared, tiny_config(), progress, stop)
    assert heard == [(0, 3), (1, 3)]


def test_hits_and_misses_of_both_caches_are_counted_and_what_is_kept_in_neither():
    names = {
        "cache_hits": ("inductor", "fxgraph_cache_hit"),
        "cache_misses": ("inductor", "fxgraph_cache_miss"),
        "aot_cache_hits": ("aot_autograd", "autograd_cache_hit"),
        "aot_cache_misses": ("aot_autograd", "autograd_cache_miss"),
    }
    seal = Seal(strict=False)
    before = seal.counts()
    for number, (group, name) in enumerate(names.values(), start=1):
        counters[group][name] += number
    counters["inductor"]["fxgraph_cache_bypass"] += 10
    counters["aot_autograd"]["autograd_cache_bypass"] += 20
    after = seal.counts()
    assert [getattr(after, name) - getattr(before, name) for name in names] == [1, 2, 3, 4]
    assert after.cache_bypasses - before.cache_bypasses == 30

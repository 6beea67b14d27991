"""Variants of the field record's incidents, made and given their expected answers before anything was run,
by someone who had not seen the signatures.

Rule: an expectation stays as it was written; what was mended afterwards is said in docs/diagnosis.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.lab.saga import FALLEN, RACE, SLOWER, edit_model, uninstall
from tests.lab.stage import MODEL, Answer, Stage, Story


@dataclass(frozen=True)
class Variant:
    name: str
    act: Callable[[Stage], Answer]
    first: tuple[str, ...]
    """The first finding above info is one of these."""
    diff: tuple[str, ...]
    """Each stands in the first three lines of `orch diff`."""


def install_another_framework(stage: Stage) -> None:
    """A serving stack that wants an older numpy; torch stays."""
    uninstall(stage, "numpy")
    stage.venv.install("numpy", "1.26.4")
    for name, version in (("vllm", "0.11.0"), ("xformers", "0.0.32"), ("ray", "2.49.1"), ("outlines", "1.2.3")):
        stage.venv.install(name, version)


def polluted_by_another_framework(stage: Stage) -> Answer:
    install_another_framework(stage)
    return stage.ask(stage.launch(replace(SLOWER, rate=14_900.0)))


def cuda_runtime_uninstalled(stage: Stage) -> Answer:
    uninstall(stage, "nvidia-cuda-runtime-cu12")
    return stage.ask(stage.launch(Story(rate=None)))


def library_file_removed(stage: Stage) -> Answer:
    """The package is still listed; its file is gone."""
    (stage.venv.site / "nvidia/nccl/lib/libnccl.so.2").unlink()
    return stage.ask(stage.launch(Story(rate=None)))


def cache_lost_partly(stage: Stage) -> Answer:
    """A cleaner of /tmp took most of the graphs and the big file; the extensions stayed."""
    kept = stage.extensions.with_name("kept")
    stage.extensions.rename(kept)
    stage.inductor.rename(stage.inductor.with_name("old"))
    stage.warm(graphs=17, size=96_000_000)
    return stage.ask(None, "now")


def another_hack_left_entries(stage: Stage) -> Answer:
    """Errors suppressed in one run; taken out again; the next run reads what it left."""
    stage.launch(replace(FALLEN, rate=4_300.0, settings={"suppress_errors": True}))
    return stage.ask(stage.launch(Story(rate=6_900.0, phase="stopping", exit_code=3)))


def model_edited_at_its_last_line(stage: Stage) -> Answer:
    stage.model.write_text(MODEL.replace("layer.self_attn(hidden, mask)", "layer.self_attn(hidden, mask.to_dense())"))
    return stage.ask(stage.launch(replace(FALLEN, swing=0.0, rate=5_100.0)))


def torch_edited_in_the_venv(stage: Stage) -> Answer:
    """The wrong cure put into site-packages instead of into the model."""
    path = stage.venv.site / "torch/__init__.py"
    path.write_text(path.read_text() + "\nis_fx_symbolic_tracing = lambda: False\n")
    return stage.ask(stage.launch(SLOWER))


def notebook_on_a_gpu(stage: Stage) -> Answer:
    """A process that no run started, in the container, on one drafter's GPU."""
    holder = stage.place.hold_gpus({6: 38_000})
    try:
        return stage.ask(stage.launch(replace(SLOWER, rate=11_700.0)))
    finally:
        holder.end()


def neighbour_on_a_gpu(stage: Stage) -> Answer:
    """The same from the host, out of the container's sight."""
    holder = stage.place.hold_gpus({2: 52_000}, container=None)
    try:
        return stage.ask(stage.launch(replace(SLOWER, rate=11_700.0)))
    finally:
        holder.end()


def data_halved(stage: Stage) -> Answer:
    for number in range(5):
        (stage.data / f"part-{number}.jsonl").unlink()
    return stage.ask(stage.launch(Story(rate=20_700.0)))


def printed(rate: float) -> Story:
    """A training that only prints, each 20 s."""
    began_s = time.time() - 1200
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(began_s + 20 * n))} INFO iter={10 * n} loss=2.31 "
        f"tokens/s={rate * (1.2 if n % 2 else 0.8):.1f} lr=1e-4\n"
        for n in range(1, 60)
    ]
    return Story(log="".join(lines), writes=False)


def foreign_and_slow(stage: Stage) -> Answer:
    stage.launch(printed(21_300.0))
    stage.place.ok("runs", "mark", "last", "good")
    return stage.ask(stage.launch(printed(4_400.0)))


def cured_by_a_variable(stage: Stage) -> Answer:
    """Nothing of it is in torch's settings as the run recorded them."""
    variables = {"STAGE": str(stage.root), "PYTHONDONTWRITEBYTECODE": "1", "TORCH_COMPILE_DISABLE": "1"}
    stage.write(variables=variables)
    return stage.ask(stage.launch(FALLEN))


def cache_switched_off_by_a_variable(stage: Stage) -> Answer:
    variables = {"STAGE": str(stage.root), "PYTHONDONTWRITEBYTECODE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    stage.write(variables=variables)
    return stage.ask(stage.launch(RACE))


def framework_and_edit(stage: Stage) -> Answer:
    install_another_framework(stage)
    edit_model(stage, "import gc; gc.disable()")
    return stage.ask(stage.launch(SLOWER))


def cold_and_fallen(stage: Stage) -> Answer:
    """The cold cache that does not crash: a silent fallback from the start."""
    stage.lose_cache()
    return stage.ask(stage.launch(replace(FALLEN, rate=4_600.0, phase="training", goes_on=True)))


def older_torch(stage: Stage) -> Answer:
    """Another framework pinned torch back; the CUDA build is the same."""
    venv = stage.venv
    venv.uninstall(next(venv.site.glob("torch-2.11.0+*.dist-info")))
    files = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.9.1+cu128'\ncuda = '12.8'\n"}
    venv.install("torch", "2.9.1+cu128", files)
    stage.runtime |= {"torch": "2.9.1+cu128"}
    return stage.ask(stage.launch(replace(SLOWER, rate=9_800.0)))


VARIANTS = [
    Variant(
        "vllm installed, numpy downgraded: 14.9 Ktok/s",
        polluted_by_another_framework,
        ("environment-polluted",),
        ("numpy",),
    ),
    Variant("nvidia-cuda-runtime-cu12 uninstalled", cuda_runtime_uninstalled, ("missing-library",), ("cuda-runtime",)),
    Variant("libnccl.so.2 deleted, its package listed", library_file_removed, ("missing-library",), ("nccl",)),
    Variant("caches lost partly", cache_lost_partly, ("cold-cache", "warm-up-insufficient"), ("compile cache",)),
    Variant("suppress_errors taken out, its cache kept", another_hack_left_entries, ("hacked-cache",), ("cache",)),
    Variant("model edited at its last line: slow", model_edited_at_its_last_line, ("code-edited",), ("dflash_model",)),
    Variant(
        "torch edited in site-packages: 12.8 Ktok/s",
        torch_edited_in_the_venv,
        ("torch-changed", "environment-polluted", "code-edited"),
        ("torch",),
    ),
    Variant("a notebook holds a GPU: slow", notebook_on_a_gpu, ("stray-process",), ("stray-process",)),
    Variant("a process of the host holds a GPU: slow", neighbour_on_a_gpu, ("gpu-neighbour",), ("gpu-neighbour",)),
    Variant("data halved", data_halved, ("data-changed",), ("data",)),
    Variant("a foreign payload prints tokens/s only: slow", foreign_and_slow, ("slow", "eager-fallback"), ("4.4",)),
    Variant(
        "TORCH_COMPILE_DISABLE=1: slow",
        cured_by_a_variable,
        ("torch-changed", "settings-changed"),
        ("TORCH_COMPILE_DISABLE",),
    ),
    Variant(
        "caches switched off by a variable: the race",
        cache_switched_off_by_a_variable,
        ("fx-race",),
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES",),
    ),
    Variant(
        "framework installed and model edited: slow",
        framework_and_edit,
        ("code-edited", "environment-polluted"),
        ("numpy", "dflash_model"),
    ),
    Variant(
        "caches removed, silent fallback, no error",
        cold_and_fallen,
        ("eager-fallback", "cold-cache"),
        ("compile cache",),
    ),
    Variant("torch 2.11.0 -> 2.9.1, same CUDA: slow", older_torch, ("environment-polluted",), ("2.9.1",)),
]

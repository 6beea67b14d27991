"""Each incident of the field record and each wrong cure that was tried: what is done to the stage, what orch must say.

Rule: a scenario is small enough to be read beside the incident that it replays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.lab.stage import GOOD_PER_S, MODEL, PEAK_MIB, Answer, Stage, Story, recorded
from tests.recordings import FOLDER

FALLEN = Story(rate=4_450.0, swing=0.6, peak_mib=118_000.0, phase="stopping", exit_code=3)
"""4.3 to 4.6 Ktok/s, GPU memory volatile, no error at all."""
SLOWER = Story(rate=12_800.0, phase="stopping", exit_code=3)
RACE = recorded("unguarded")
OUT_OF_MEMORY = "".join(
    f"drafter-{n}: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.04 GiB. GPU {5 + n} has a total "
    "capacity of 139.80 GiB of which 57.12 GiB is free.\n"
    for n in range(3)
)
LIMIT = (FOLDER / "recompile_limit.log").read_text()
"""What torch 2.13.0 says on a CPU, of a function with ten lengths."""


@dataclass(frozen=True)
class Scenario:
    item: str
    """Of the record."""
    name: str
    act: Callable[[Stage], Answer]
    first: str
    """The finding that names the cause."""
    diff: str
    """In the first three lines of `orch diff`."""


def install_the_serving_stack(stage: Stage) -> None:
    """Into the training's venv: what it brings, and torch for another CUDA."""
    venv = stage.venv
    for name, version in (("sglang", "0.5.1"), ("flashinfer-python", "0.4.0"), ("sgl-kernel", "0.3.9")):
        venv.install(name, version)
    for name in ("nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cusparselt-cu13"):
        venv.install(name, "9.15.1.9", {f"{name.replace('-', '_')}/__init__.py": ""})
    swap_torch(stage, "cu130", "13.0")


def swap_torch(stage: Stage, build: str, cuda: str) -> None:
    site = stage.venv.site
    stage.venv.uninstall(next(site.glob("torch-2.11.0+*.dist-info")))
    stage.venv.install_torch(build)
    (site / "torch/version.py").write_text(f"__version__ = '2.11.0+{build}'\ncuda = '{cuda}'\n")
    stage.runtime |= {"torch": f"2.11.0+{build}", "cuda": cuda}


def uninstall(stage: Stage, *names: str) -> None:
    for name in names:
        for info in stage.venv.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            stage.venv.uninstall(info)


def edit_model(stage: Stage, line: str) -> None:
    stage.model.write_text(MODEL.replace('"""The drafter."""', f'"""The drafter."""\n{line}'))


def polluted(stage: Stage) -> Answer:
    install_the_serving_stack(stage)
    return stage.ask(stage.launch(SLOWER))


def polluted_and_swapped_back(stage: Stage) -> Answer:
    install_the_serving_stack(stage)
    swap_torch(stage, "cu128", "12.8")
    return stage.ask(stage.launch(SLOWER))


def removed(*packages: str) -> Callable[[Stage], Answer]:
    def act(stage: Stage) -> Answer:
        uninstall(stage, *packages)
        return stage.ask(stage.launch(Story(rate=None)))

    return act


def cache_removed(stage: Stage) -> Answer:
    """Seen before anything is launched."""
    stage.lose_cache()
    return stage.ask(None, "now")


def cache_removed_and_slow_start(stage: Stage) -> Answer:
    stage.lose_cache()
    return stage.ask(stage.launch(Story(rate=None, phase="training", goes_on=True, status={"step": 0}, log="")))


def raced(stage: Stage) -> Answer:
    stage.lose_cache()
    return stage.ask(stage.launch(RACE))


def raced_out_of_memory(stage: Stage) -> Answer:
    stage.lose_cache()
    return stage.ask(stage.launch(replace(RACE, log=(RACE.log or "") + OUT_OF_MEMORY)))


def cured_by_editing(line: str, story: Story) -> Callable[[Stage], Answer]:
    def act(stage: Stage) -> Answer:
        edit_model(stage, line)
        return stage.ask(stage.launch(story))

    return act


def cured_by_transformers(stage: Stage) -> Answer:
    uninstall(stage, "transformers")
    stage.venv.install("transformers", "5.8.1")
    stage.runtime |= {"transformers": "5.8.1"}
    return stage.ask(stage.launch(RACE))


def cured_by_another_cuda(stage: Stage) -> Answer:
    swap_torch(stage, "cu130", "13.0")
    return stage.ask(stage.launch(RACE))


def silenced(stage: Stage) -> Answer:
    """The hang that an H200 showed, after 20 minutes."""
    return stage.ask(stage.launch(recorded("silenced")))


def silenced_and_slow(stage: Stage) -> Answer:
    return stage.ask(stage.launch(replace(FALLEN, settings={"error_on_nested_fx_trace": False})))


def silenced_and_stuck(stage: Stage) -> Answer:
    """28.1 in place of 175 Ktok/s, 57.8 in place of 7.2 GiB: what an H200 showed of five targets and three drafters."""
    story = recorded("stuck_five_targets", rate=GOOD_PER_S * 28.1 / 175, peak_mib=PEAK_MIB * 57.8 / 7.2)
    return stage.ask(stage.launch(story))


def silenced_out_of_memory(stage: Stage) -> Answer:
    settings = {"error_on_nested_fx_trace": False}
    return stage.ask(stage.launch(Story(rate=None, log=OUT_OF_MEMORY, exit_code=1, settings=settings)))


def forced(stage: Stage) -> Answer:
    return stage.ask(stage.launch(replace(FALLEN, settings={"force_compile_during_fx_trace": True})))


def forced_before(stage: Stage) -> Answer:
    """The hack is out again; what it left in the cache is not."""
    stage.launch(replace(FALLEN, settings={"force_compile_during_fx_trace": True}))
    return stage.ask(stage.launch(replace(FALLEN, swing=0.0, peak_mib=60_000.0)))


def never_tracing(stage: Stage) -> Answer:
    return stage.ask(stage.launch(recorded("always_false")))


def one_kernel_warmed(stage: Stage) -> Answer:
    stage.lose_cache()
    stage.warm(graphs=6, size=925_000)
    return stage.ask(stage.launch(RACE))


def warm_up_said_success(stage: Stage) -> Answer:
    stage.lose_cache()
    stage.warm(graphs=6, size=925_000)
    return stage.ask(None, "now")


def warm_up_believed(stage: Stage) -> Answer:
    stage.lose_cache()
    stage.warm(graphs=6, size=925_000)
    return stage.ask(stage.launch(Story(rate=None, phase="training", goes_on=True, status={"step": 0}, log="")))


def hacks_left(stage: Stage) -> Answer:
    edit_model(stage, "import torch._dynamo.config  # try without")
    return stage.ask(None, "now")


def hacks_left_in_the_release(stage: Stage) -> Answer:
    path = stage.release / "train.py"
    path.chmod(0o644)
    path.write_text(path.read_text() + "# use_reentrant=False\n")
    return stage.ask(stage.launch(Story()))


def strays(stage: Stage) -> Answer:
    """The session was killed; what the run had started holds three GPUs, and hears no TERM."""
    answer = stage.ask(stage.launch(Story(exit_code=137, strays=("5=71000", "6=71000", "7=71000"))))
    stage.place.ok("reset", "--kill-gpus", "--yes")  # what the finding says is the way out
    assert "stray-process" not in stage.ask(None).ids
    return answer


def polled_by_hand(stage: Stage) -> Answer:
    """`tmux capture-pane -p -S -5` of 80 columns has no whole exception; the log has."""
    stage.write(session="dflash")
    run_id = stage.launch(RACE)
    answer = stage.ask(run_id)
    exception = "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function"
    assert exception not in stage.pane(run_id, columns=80, lines=5)
    assert any(exception in line for line in answer.doctor["findings"][0]["evidence"])
    return answer


def recompiled(stage: Stage) -> Answer:
    return stage.ask(stage.launch(replace(FALLEN, log=LIMIT)))


SCENARIOS = [
    Scenario("1", "serving stack installed, torch cu128 -> cu130", polluted, "environment-polluted", "cu130"),
    Scenario("1", "the same, torch swapped back", polluted_and_swapped_back, "environment-polluted", "flashinfer"),
    Scenario("2", "nvidia-cudnn-cu12 uninstalled", removed("nvidia-cudnn-cu12"), "missing-library", "cudnn"),
    Scenario(
        "2", "nvidia-cusparselt-cu12 uninstalled", removed("nvidia-cusparselt-cu12"), "missing-library", "cuspars"
    ),
    Scenario("2", "nvidia-nccl-cu12 uninstalled", removed("nvidia-nccl-cu12"), "missing-library", "nccl"),
    Scenario(
        "2",
        "all of them at once",
        removed("nvidia-cudnn-cu12", "nvidia-cusparselt-cu12", "nvidia-nccl-cu12", "wandb"),
        "missing-library",
        "cudnn",
    ),
    Scenario("3", "caches removed, before a launch", cache_removed, "cold-cache", "compile cache"),
    Scenario("3", "caches removed, launched", cache_removed_and_slow_start, "cold-cache", "compile cache"),
    Scenario("4", "the race, cold cache (H200)", raced, "fx-race", "compile cache"),
    Scenario("4", "the race, then CUDA out of memory", raced_out_of_memory, "fx-race", "compile cache"),
    Scenario("5", "use_reentrant", cured_by_editing("REENTRANT = False", RACE), "fx-race", "dflash_model.py"),
    Scenario("5", "transformers 5.6.0 -> 5.8.1", cured_by_transformers, "fx-race", "transformers"),
    Scenario("5", "cu128 -> cu130", cured_by_another_cuda, "fx-race", "cu130"),
    Scenario("5", "the error silenced: it hangs (H200)", silenced, "torch-changed", "error_on_nested_fx_trace"),
    Scenario("5", "the error silenced: slow", silenced_and_slow, "torch-changed", "error_on_nested_fx_trace"),
    Scenario("5", "the error silenced: six times slower (H200)", silenced_and_stuck, "fx-race", "error_on_nested_fx"),
    Scenario("5", "the error silenced: out of memory", silenced_out_of_memory, "torch-changed", "error_on_nested_fx"),
    Scenario("5", "force_compile", forced, "torch-changed", "force_compile_during_fx_trace"),
    Scenario("5", "force_compile taken out, its cache kept", forced_before, "hacked-cache", "-> hacked-cache"),
    Scenario("5", "a wrapper compiled", cured_by_editing("WRAPPED = True", RACE), "fx-race", "dflash_model.py"),
    Scenario(
        "5",
        "the flag cleared before the call: it hangs (H200)",
        cured_by_editing("import sys  # trace._is_fx_tracing_flag = False", recorded("flag_cleared")),
        "code-edited",
        "dflash_model.py",
    ),
    Scenario("5", "is_fx_symbolic_tracing always False (H200)", never_tracing, "torch-changed", "is_fx_symbolic"),
    Scenario("5", "one kernel warmed, then the race", one_kernel_warmed, "fx-race", "compile cache"),
    Scenario(
        "6", "warm-up said success, before a launch", warm_up_said_success, "warm-up-insufficient", "compile cache"
    ),
    Scenario("6", "warm-up believed, launched", warm_up_believed, "warm-up-insufficient", "compile cache"),
    Scenario("7", "the model file edited in place", hacks_left, "code-edited", "dflash_model.py"),
    Scenario("7", "a file of the release edited in place", hacks_left_in_the_release, "code-edited", "train.py"),
    Scenario("8", "stray processes on three GPUs", strays, "stray-process", "-> stray-process"),
    Scenario("9", "the traceback, of a pane of 80 columns", polled_by_hand, "fx-race", "-> fx-race"),
    Scenario("-", "recompile limit, and nothing else differs", recompiled, "recompile-limit", "-> recompile-limit"),
]

"""Trains a DFlash drafter: `python train.py`, in a run's folder given by ORCH_RUN_DIR or in one of its own (start.py).

Rule: nothing heavy is imported before the settings are known to be right. What a run then goes through is in stages.py,
its steps in loop.py.

Shutdown order: the first SIGTERM lets the current step end; the queue is closed, which ends the target thread; the
drafter saves a checkpoint; exit code 3. Before there is anything to save, a stop leaves with 143. A second SIGTERM ends
the process at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from argparse import Namespace
from typing import TYPE_CHECKING, Callable, List, Mapping, Optional, Sequence

import contract
from config import Config, ConfigError, resolve, to_yaml
from progress import Progress
from ranks import Rank, ranks_of
from samples import DataError
from start import Run, find_run, layers_of, read_command_line, spec_of
from stopping import StopAsked, StopRequest
from supervisor import supervise
from trackers import open_trackers
from watchdog import Watchdog

if TYPE_CHECKING:
    from links import Member


def main(arguments: Optional[Sequence[str]] = None) -> int:
    asked = read_command_line(sys.argv[1:] if arguments is None else arguments)
    if asked.plan:
        return plan(asked)
    stop = StopRequest()
    stop.install()
    try:
        folder, spec = find_run(asked)
    except (OSError, ValueError) as error:
        print(f"the run's folder: {error}", file=sys.stderr, flush=True)
        return contract.EXIT_BAD_CONFIG
    progress = Progress(folder)
    progress.phase("loading")

    def work() -> int:
        config, places = resolve(*layers_of(asked, spec))
        run = Run(config, spec, folder, progress, stop)
        ranks = ranks_for(config, spec)
        if ranks:
            return supervise(run, places, ranks)
        with Watchdog(progress, config.watchdog):
            return carry_out(run, places)

    return answer_for(work, progress)


def ranks_for(config: Config, spec: contract.RunSpec) -> List[Rank]:
    """The processes of the engine `processes`; none of the engine `threads`. Raises ConfigError, DeviceError."""
    if config.engine == "threads" or (config.engine == "auto" and config.device == "cpu"):
        return []
    if config.device == "cpu":
        return ranks_of(spec.targets, spec.drafters, on_gpus=False)
    from devices import choose_engine, place

    placement = place(config.device, targets=spec.targets, drafters=spec.drafters)
    if choose_engine(config.engine, placement) == "threads":
        return []
    on_gpus = placement.device.type == "cuda"
    return ranks_of(
        len(placement.targets),
        len(placement.drafters),
        on_gpus=on_gpus,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def answer_for(work: Callable[[], int], progress: Progress) -> int:
    """The exit code of whatever comes of it; what went wrong is in the log and in the status."""
    try:
        return work()
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr, flush=True)
        progress.phase("failed", f"configuration: {error}")
        return contract.EXIT_BAD_CONFIG
    except DataError as error:
        print(f"data: {error}", file=sys.stderr, flush=True)
        progress.phase("failed", f"data: {error}")
        return contract.EXIT_BAD_CONFIG
    except StopAsked:
        progress.say("stopped before the first checkpoint: nothing to resume from")
        progress.phase(contract.PHASE_STOPPING, "stopped before the first checkpoint")
        return contract.EXIT_STOPPED_EMPTY_HANDED
    except Exception as error:
        traceback.print_exc()
        progress.phase("failed", f"{type(error).__name__}: {error}")
        return contract.EXIT_FAILED


def plan(asked: Namespace) -> int:
    """Prints what would be run, and makes nothing."""
    folder = contract.run_dir()
    try:
        spec = contract.read_run_spec(folder) if folder is not None else spec_of(asked)
        config, places = resolve(*layers_of(asked, spec))
        from preview import preview

        print("\n".join([*settings_lines(config, places), *preview(config, spec)]))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"plan: {error}", file=sys.stderr, flush=True)
        return contract.EXIT_BAD_CONFIG
    return contract.EXIT_OK


def settings_lines(config: Config, places: Mapping[str, str]) -> List[str]:
    """Every setting, and where it was written if it is no default."""
    return [
        f"  {name} = {value}" + (f"   ({places[name]})" if name in places else "")
        for name, value in config.flat().items()
    ]


def carry_out(run: Run, places: Mapping[str, str], member: Optional[Member] = None) -> int:
    """member: this is the leader of a run with one process a device; the others wait for what it prepares."""
    run.progress.say(f"run {run.spec.run_id} in {run.folder}")
    for line in settings_lines(run.config, places):
        run.progress.say(line)
    (run.folder / contract.CONFIG).write_text(to_yaml(run.config), encoding="utf-8")
    run.progress.trackers += open_trackers(run.config.log, run.folder, run.spec.run_id)
    # Heavy imports come after the settings are known to be right.
    from stages import go_through

    return go_through(run, member)


if __name__ == "__main__":
    sys.exit(main())

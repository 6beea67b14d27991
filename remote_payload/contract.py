"""Where orch and a payload meet: file names, records, exit codes. Standard library only, Python 3.8 or newer.

A payload that was not written for orch needs none of this: it is started, its lines are logged and its
exit code is recorded all the same. One that writes `status.json` gets a truer status; one that saves a
checkpoint on SIGTERM loses nothing at `orch stop`.

The run's folder (environment variable ORCH_RUN_DIR):

    run.json         orch        what to run: the run spec, written once, before the start
    fingerprint.json orch        what the run started from (release, packages, driver, limits), before the start
    cache.json       orch        the compile caches before the start and after the end, and what they were made from
    run.log          wrapper     stdout and stderr of the training, appended
    wrapper.json     wrapper     who runs it: boot id, pids, start times
    exit.json        wrapper     how it ended, written once, by rename
    stop.json        orch        that somebody asked it to stop
    status.json      payload     where it is now, rewritten by rename, a few times a second at most
    metrics.jsonl    payload     one JSON object a line, appended
    runtime.json     payload     what it really runs on (versions, devices); `compile_plan` {"graphs": {device: least
                                 number of compiled graphs}}; `first_step` {total_s, ...}
    result.json      payload     what came out (acceptance length, ...), once, at the end
    config.yaml      payload     the settings it runs with, all of them
    export/          payload     the finished model, for servers
    checkpoints/     payload     step-<n>/, complete only with the marker file inside
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:  # the agent reads records at every status and needs no pathlib for that
    from pathlib import Path

SCHEMA_VERSION = 1

RUN_DIR_VARIABLE = "ORCH_RUN_DIR"
RUN_ID_VARIABLE = "ORCH_RUN_ID"

RUN_SPEC = "run.json"
FINGERPRINT = "fingerprint.json"
CACHE = "cache.json"
RUN_LOG = "run.log"
WRAPPER = "wrapper.json"
EXIT = "exit.json"
STOP = "stop.json"
STATUS = "status.json"
METRICS = "metrics.jsonl"
RUNTIME = "runtime.json"
RESULT = "result.json"
CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
EXPORT = "export"
CHECKPOINT_MARKER = "_SUCCESS"

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIG = 2
EXIT_STOPPED_WITH_CHECKPOINT = 3
"""Left on SIGTERM after a complete checkpoint: stopped as asked."""
EXIT_STOPPED_EMPTY_HANDED = 143
"""128 + SIGTERM: stopped as asked, before there was a checkpoint."""
PHASE_STOPPING = "stopping"
"""With one of these two codes it says that the training left because it was told to, whoever told it."""


ACCEPTANCE_LENGTH = (
    "the mean over verification cycles of the tokens a cycle yields: the accepted drafts and the target's own next "
    "token, between 1 and the block size"
)


@dataclass(frozen=True)
class RunSpec:
    """What a payload reads from run.json (the file holds more, for orch; unknown keys are ignored)."""

    run_id: str
    settings: Dict[str, Any] = field(default_factory=dict)
    """Dotted names -> values: the inventory's settings, then `--set`."""
    targets: int = 1
    drafters: int = 1
    data: Optional[str] = None
    model: Optional[str] = None
    resume_from: Optional[str] = None
    """Absolute path of a complete checkpoint folder."""
    warmup: bool = False
    """Only compile what a run will ask for, and end with success: `orch warmup`."""


@dataclass(frozen=True)
class Status:
    """What a payload says of itself. Unknown is None."""

    phase: str
    """loading, preparing, compiling, training, evaluating, checkpointing, stopping, done, failed"""
    step: Optional[int] = None
    total_steps: Optional[int] = None
    loss: Optional[float] = None
    tokens_per_s: Optional[float] = None
    """Over the long window; training tokens through the drafter per second."""
    eta_s: Optional[float] = None
    detail: Optional[str] = None
    """A short line for a person: `compiling 3 of 8`."""
    updated_at: Optional[float] = None
    """Unix time."""
    phase_started_at: Optional[float] = None
    """Unix time: since when the phase has been this one."""
    compile_done: Optional[int] = None
    """While compiling: graphs that are done. A long start that gets on is then told from one that hangs."""
    compile_total: Optional[int] = None
    compiled: Optional[Dict[str, int]] = None
    """compiles, cache_hits, cache_misses, fallbacks (calls that ran uncompiled), recompiles (after the start);
    aot_cache_hits, aot_cache_misses, cache_bypasses (graphs that torch will not keep); tracing_stuck (processes
    whose torch.fx tracing flag is stuck)."""
    wait_shares: Optional[Dict[str, float]] = None
    """Role -> part of its time, 0 to 1, that it has waited at the queue: the other side is the slower one."""
    warnings: Optional[List[str]] = None
    """What a person should know and nothing failed for. None: nothing."""
    schema: int = SCHEMA_VERSION


def run_dir() -> Optional[Path]:
    """The run's folder, or None when the payload was started by hand."""
    from pathlib import Path

    value = os.environ.get(RUN_DIR_VARIABLE)
    return Path(value) if value else None


def read_run_spec(folder: Path) -> RunSpec:
    """Raises OSError, or ValueError when the file is not a run spec."""
    raw = json.loads((folder / RUN_SPEC).read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or "run_id" not in raw:
        raise ValueError(f"{folder / RUN_SPEC}: not a run spec")
    known = {name: raw[name] for name in RunSpec.__dataclass_fields__ if name in raw}
    return RunSpec(**known)


def write_json(path: Path, record: Any) -> None:
    """Write a dataclass or a plain object by rename: a reader sees the old file or the new one, whole."""
    import tempfile  # whoever only reads records need not wait for it

    plain = asdict(record) if hasattr(record, "__dataclass_fields__") else record
    handle, temporary = tempfile.mkstemp(dir=str(path.parent), prefix=path.name + ".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(plain, stream, indent=1, sort_keys=True)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, str(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

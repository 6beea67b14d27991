"""One run as its record on the target tells it: what was asked for, where it is, what it has made.

Rule: pure; built only from the agent's run_facts. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.ledger.cache_use import CacheUse, parse_cache_use
from orchestrator.ledger.run_environment import KEY, RunEnvironment, parse_run_environment
from orchestrator.probes.training import RunPhase, RunState, TrainingStatus, judge_run, parse_status
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str, as_strs
from remote_payload import contract


@dataclass(frozen=True)
class Checkpoint:
    name: str
    step: int | None
    complete: bool


@dataclass(frozen=True)
class SessionFact:
    """The tmux session in which the run can be watched."""

    name: str
    present: bool | None
    attached: int | None
    note: str | None
    attach: tuple[str, ...] | None
    """argv, on the target."""


@dataclass(frozen=True)
class RunRecord:
    run_id: str
    folder: str
    argv: tuple[str, ...]
    cwd: str | None
    release: str | None
    """None for an adopted run, too: it has none, and its record names the folder that it was started in."""
    environment: RunEnvironment | None
    """None: it runs in one that orch did not make."""
    variables: tuple[str, ...]
    """Names of the training's environment variables; values stay on the target."""
    settings: Mapping[str, object]
    created_at: float | None
    resume_from: str | None
    state: RunState
    status: TrainingStatus | None
    result: Mapping[str, object] | None
    runtime: Mapping[str, object] | None
    checkpoints: tuple[Checkpoint, ...]
    log_size_bytes: int | None
    log_written_at: float | None
    session: SessionFact | None
    cache: CacheUse | None
    """What it made of the compile cache."""
    broken: tuple[str, ...]
    """Paths of records that cannot be read."""

    @property
    def last_checkpoint(self) -> Checkpoint | None:
        complete = [checkpoint for checkpoint in self.checkpoints if checkpoint.complete]
        return complete[-1] if complete else None

    @property
    def failed(self) -> bool:
        """It is over and did not succeed; a run that was asked to stop did not fail by leaving as it was told."""
        phase, ended = self.state.phase, self.state.exit
        if phase is RunPhase.ENDED and ended is not None:
            asked = self.state.stop_asked and ended.exit_code != contract.EXIT_FAILED
            return not ended.succeeded and not asked and not self._says_it_was_stopped
        return phase in (RunPhase.ENDED_UNKNOWN, RunPhase.NOT_STARTED)

    @property
    def _says_it_was_stopped(self) -> bool:
        """A SIGTERM need not come from orch: a container that shuts down sends one, too."""
        codes = (contract.EXIT_STOPPED_WITH_CHECKPOINT, contract.EXIT_STOPPED_EMPTY_HANDED)
        ended, status = self.state.exit, self.status
        said = status is not None and status.phase == contract.PHASE_STOPPING
        return said and ended is not None and ended.exit_code in codes


def parse_run_record(facts: Mapping[str, object]) -> RunRecord | None:
    """`facts` is the header of the agent's run_facts. None: there is no run."""
    run = as_mapping(facts.get("run"))
    run_id = as_str(run.get("id"))
    if run_id is None:
        return None
    spec = as_mapping(run.get("spec"))
    log = as_mapping(run.get("log"))
    kept = {name: as_mapping(run.get(name)) for name in ("spec", "wrapper", "exit", "status", "result", "runtime")}
    return RunRecord(
        run_id=run_id,
        folder=as_str(run.get("folder")) or "",
        argv=as_strs(spec.get("argv")),
        cwd=as_str(spec.get("cwd")),
        release=None if as_mapping(spec.get("adopted")) else as_str(spec.get("release")),
        environment=parse_run_environment(spec.get(KEY)),
        variables=as_strs(spec.get("environment")),
        settings=as_mapping(spec.get("settings")),
        created_at=as_float(spec.get("created_at")),
        resume_from=as_str(spec.get("resume_from")),
        state=judge_run(facts),
        status=parse_status(run.get("status")),
        result=_whole(kept["result"]),
        runtime=_whole(kept["runtime"]),
        checkpoints=_checkpoints(run.get("checkpoints")),
        log_size_bytes=as_int(log.get("size")),
        log_written_at=as_float(log.get("mtime")),
        session=_session(as_mapping(facts.get("session"))),
        cache=parse_cache_use(run.get("cache")),
        broken=tuple(path for record in kept.values() if (path := as_str(record.get("broken")))),
    )


def _whole(record: Mapping[str, object]) -> Mapping[str, object] | None:
    return record if record and "broken" not in record else None


def _checkpoints(value: object) -> tuple[Checkpoint, ...]:
    entries = [as_mapping(entry) for entry in value] if isinstance(value, list) else []
    found = []
    for entry in entries:
        name = as_str(entry.get("name"))
        if name is not None:
            number = name.rpartition("-")[2]
            step = int(number) if number.isascii() and number.isdigit() else None
            found.append(Checkpoint(name, step, as_bool(entry.get("complete")) is True))
    return tuple(found)


def _session(raw: Mapping[str, object]) -> SessionFact | None:
    name = as_str(raw.get("wanted"))
    if name is None:
        return None
    return SessionFact(
        name=name,
        present=as_bool(raw.get("present")),
        attached=as_int(raw.get("attached")),
        note=as_str(raw.get("note")),
        attach=as_strs(raw.get("attach")) or None,
    )

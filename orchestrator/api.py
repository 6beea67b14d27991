"""orch from Python: the operations of the command line as awaitable methods of one target. docs/python.md has examples.

    box = Orch("ct200")
    await box.deploy()
    started = await box.launch(settings={"steps": 2000})
    await box.wait(started.run_id)
    await box.publish(started.run_id, "/srv/drafter")

Nothing here prints. What goes wrong is raised as an orchestrator.errors.OrchError: `what`, `evidence`, `way_out`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.errors import NotAsWantedError, OutcomeUnknownError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Inventory, Target
from orchestrator.inventory.select import select_one_target
from orchestrator.ledger.publications import KEEP, Publication
from orchestrator.operations import cache_change, environment, environment_check
from orchestrator.operations.deploy import deploy, rollback
from orchestrator.operations.diff import diff
from orchestrator.operations.doctor import doctor
from orchestrator.operations.follow_run import Look, follow_run
from orchestrator.operations.last_good_rate import GoodRate, last_good_rate
from orchestrator.operations.launch import LaunchRequest, Seeding, launch
from orchestrator.operations.launch_wait import ended_before, raise_if_failed
from orchestrator.operations.notify import Message, Notified, notify
from orchestrator.operations.publish import publish, published, switch_published
from orchestrator.operations.pull import pull
from orchestrator.operations.status import status
from orchestrator.operations.stop import stop
from orchestrator.operations.where import parse_where
from orchestrator.playbook.play import load_playbook
from orchestrator.playbook.play import play as play_loaded
from orchestrator.playbook.progress import Progress
from orchestrator.playbook.steps_run import tokens_per_s
from orchestrator.probes.training import RunPhase
from orchestrator.reports.cache import SavedReport, SeededReport
from orchestrator.reports.deploy import DeployReport, RollbackReport
from orchestrator.reports.diff import DiffReport
from orchestrator.reports.doctor import DoctorReport
from orchestrator.reports.environment import SyncReport
from orchestrator.reports.environment_check import CheckReport
from orchestrator.reports.launch import LaunchReport
from orchestrator.reports.publish import PublishReport, SwitchReport
from orchestrator.reports.pull import PullReport
from orchestrator.reports.status import StatusReport
from orchestrator.reports.stop import StopReport
from orchestrator.transport.tracing import Trace

GOING = (RunPhase.STARTING, RunPhase.RUNNING)

__all__ = ["Look", "Orch", "notify_all", "play", "tokens_per_s"]


class Orch:
    """One target of an inventory. Holds no connection: each call makes its own, and closes it."""

    def __init__(
        self, target: str | None = None, *, inventory: Path | str | None = None, trace: Trace | None = None
    ) -> None:
        """target: name or container id; None: the only one. inventory: a file; None: found as the command line does.
        trace: told every command line that is run. Raises InventoryError, UsageError."""
        self.inventory: Inventory = load_inventory(None if inventory is None else Path(inventory))
        self.target: Target = select_one_target(self.inventory, target)
        self._trace = trace

    async def status(self) -> StatusReport:
        """The live or last run, GPUs, session, disk."""
        return await status(self.target, trace=self._trace)

    async def deploy(self, *, ref: str | None = None) -> DeployReport:
        """Ship the payload (as it is, or of a git commit) and switch to it."""
        return await deploy(self.target, revision=ref, trace=self._trace)

    async def rollback(self, release: str | None = None) -> RollbackReport:
        """To the release before, or one whose hash begins like this."""
        return await rollback(self.target, release=release, trace=self._trace)

    async def sync_environment(self, *, purposes: Sequence[str] = ()) -> SyncReport:
        """Build what the inventory's locks say. No purposes: all of them."""
        request = environment.SyncRequest(purposes=tuple(purposes))
        return await environment.sync(self.target, request, trace=self._trace)

    async def check_environment(self, *, mode: str = "newer") -> CheckReport:
        """mode: all, newer or names. `passed` says whether it is as its lock or baseline says."""
        return await environment_check.check(self.target, environment_check.CheckRequest(mode=mode), trace=self._trace)

    async def seed_cache(self, name: str = "last-good", *, replace: bool = True, force: bool = False) -> SeededReport:
        """Make the compile cache from a snapshot. Raises UsageError (there is none), PreflightError (no fit)."""
        return await cache_change.seed_cache(self.target, name, replace=replace, force=force, trace=self._trace)

    async def save_cache(self, name: str) -> SavedReport:
        return await cache_change.save_cache(self.target, name, trace=self._trace)

    async def launch(
        self, *, settings: Mapping[str, object] | None = None, resume: str | None = None, seed: str | None = None
    ) -> LaunchReport:
        """Start a run that outlives this program. resume: `last`, RUN or RUN:STEP; seed: a snapshot, or last-good.

        Raises BusyError and PreflightError: nothing was started."""
        request = LaunchRequest(
            settings=settings or {}, resume=resume, seed=Seeding(seed, replace=True) if seed is not None else None
        )
        return await launch(self.target, request, trace=self._trace)

    async def wait(self, run_id: str, *, step: int | None = None, timeout_s: float | None = None) -> Look:
        """Until the run is at this step, or (None) has ended well. A link that comes and goes ends nothing.

        Raises RunFailedError, OutcomeUnknownError (nobody knows how it ended), DeadlineError, NotAsWantedError (its
        loss is no number)."""

        def decide(look: Look) -> Look | None:
            said = look.said
            if said is not None and said.loss is not None and not math.isfinite(said.loss):
                raise NotAsWantedError(f"run {run_id} on {self.target.name}: its loss is {said.loss}")
            if step is not None and said is not None and said.step is not None and said.step >= step:
                return look
            if look.run.state.phase in GOING:
                return None
            if look.exit is None:
                raise OutcomeUnknownError(
                    f"run {run_id} on {self.target.name} is gone, and nobody recorded how it ended",
                    evidence="\n".join(look.run.state.evidence),
                )
            raise_if_failed(self.target, run_id, look.exit, look.log_tail, stop_asked=look.run.state.stop_asked)
            if step is not None:
                raise ended_before(self.target, run_id, step, said.step if said is not None else None)
            return look

        return await follow_run(self.target, run_id, decide, timeout_s=timeout_s, trace=self._trace)

    async def last_good_rate(self, *, before: str) -> GoodRate | None:
        """How fast the last good run before this one was. None: there is none."""
        return await last_good_rate(self.target, before=before, trace=self._trace)

    async def stop(self, *, timeout_s: float | None = None, kill: bool = False) -> StopReport:
        """Ask the live run for a checkpoint and stop it."""
        return await stop(self.target, timeout_s=timeout_s, kill=kill, trace=self._trace)

    async def diff(self, a: str = "last-good", b: str = "latest") -> DiffReport:
        """What differs between two runs, the likeliest cause first; `now` is the target as it is."""
        return await diff(self.target, [a, b], trace=self._trace)

    async def doctor(self, run: str | None = None) -> DoctorReport:
        """Why a run is slow or dead. None: the live or newest one."""
        return await doctor(self.target, run, trace=self._trace)

    async def pull(self, run: str | None = None, folder: Path | str | None = None) -> PullReport:
        """A run's records, log and checkpoints, to runs/<run id> or this folder."""
        return await pull(self.target, run, None if folder is None else Path(folder), trace=self._trace)

    async def publish(self, run: str | None, to: str, *, keep: int = KEEP, profile: str | None = None) -> PublishReport:
        """run: RUN (its export) or RUN:STEP; to: a folder, TARGET:/folder or s3://bucket/prefix."""
        where = parse_where(to, self.inventory, profile=profile)
        return await publish(self.target, run, where, keep=keep, trace=self._trace)

    async def published(self, to: str, *, profile: str | None = None) -> Publication | None:
        """What is current there. None: nothing."""
        there = await published(parse_where(to, self.inventory, profile=profile), trace=self._trace)
        return there.find(there.current)

    async def rollback_published(
        self, to: str, publication: str | None = None, *, profile: str | None = None
    ) -> SwitchReport:
        """To the publication before, or a named one."""
        where = parse_where(to, self.inventory, profile=profile)
        return await switch_published(where, publication, trace=self._trace)


async def notify_all(
    text: str, *, webhook: str | None = None, command: Sequence[str] | None = None, **facts: object
) -> Notified:
    """webhook: `env:NAME` or `file:PATH`. Raises nothing: what failed is in `warnings`."""
    return await notify(Message(text, facts), webhook=webhook, command=command)


async def play(
    playbook: Path | str,
    *,
    inventory: Path | str | None = None,
    variables: Mapping[str, object] | None = None,
    start: str | None = None,
) -> Progress:
    """As `orch play`: goes on where the last one was cut off. What comes back has a `failure`, or it went well."""
    words = [f"{name}={value}" for name, value in (variables or {}).items()]
    loaded = load_playbook(Path(playbook), load_inventory(None if inventory is None else Path(inventory)), words)
    return await play_loaded(loaded, start=start)

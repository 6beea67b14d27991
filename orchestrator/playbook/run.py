"""Play a playbook: step by step, each recorded before it begins and when it has ended.

Rule: after the first failure that counts only `on_failure` and `always` are done, and whatever happens there changes
nothing about why the play failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import tenacity

from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import (
    EXIT_BUG,
    BusyError,
    DeadlineError,
    InventoryError,
    OrchError,
    OutcomeUnknownError,
    TransferError,
    UnreachableError,
)
from orchestrator.inventory.model import Inventory, Target
from orchestrator.playbook.begin import Beginning
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.durations import duration_words
from orchestrator.playbook.model import Playbook, Step
from orchestrator.playbook.progress import (
    BEGIN,
    CONTINUED,
    DONE,
    END,
    FAILED,
    NOTE,
    OVER,
    PLAY,
    SCHEMA,
    SKIPPED,
    Failure,
    Progress,
    failure_record,
)
from orchestrator.playbook.summary import summary_text
from orchestrator.playbook.variables import fill_in
from orchestrator.transport.tracing import Trace

PASSING = (UnreachableError, OutcomeUnknownError, BusyError, TransferError)
"""What may be gone at the next try; but a full disk is not."""
LONGEST_PAUSE_S = 600.0
MAX_EVIDENCE = 16 * 1024

Line = Mapping[str, object]


def may_pass(error: BaseException) -> bool:
    """Whether the same may go well a little later without anybody having done anything."""
    cause: BaseException | None = error
    while cause is not None:
        no_room = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if no_room or (isinstance(cause, AgentOpError) and cause.kind == "disk_full"):
            return False
        cause = cause.__cause__
    return isinstance(error, PASSING)


@dataclass(frozen=True)
class Watcher:
    """Who looks on; every function is told as it happens."""

    on_begin: Callable[[Step, str], None] = lambda step, targets: None
    on_end: Callable[[Step, str, str], None] = lambda step, how, said: None
    say: Callable[[Step, str], None] = lambda step, text: None
    on_status: Callable[[Mapping[str, Any]], None] = lambda status: None


@dataclass
class Play:
    """One play under way."""

    playbook: Playbook
    inventory: Inventory
    targets: Mapping[str, tuple[str, ...]]
    """Step -> names of its targets."""
    play_id: str
    doing: Mapping[str, Callable[[At, Any], Awaitable[Done]]]
    append: Callable[[Line], None]
    """One line of the record: on disk when it returns."""
    progress: Progress
    beginning: Beginning
    who: str
    watcher: Watcher = field(default_factory=Watcher)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    trace: Trace | None = None

    async def run(self) -> Progress:
        """What became of it. Raises only what keeps the play itself from going on: its record cannot be written."""
        try:
            self._open()
            await self._section(self.playbook.steps)
            self._sum_up()
            failure = self.progress.failure
            if failure is not None:
                await self._at_the_end(self.playbook.on_failure)
            await self._at_the_end(self.playbook.always)
            self._write(OVER, outcome=FAILED if failure else DONE)
        except OrchError as error:
            await self._tell_without_record(error)
            raise
        return self.progress

    def _sum_up(self) -> None:
        failure, values = self.progress.failure, self.progress.values
        values["outcome"] = FAILED if failure else DONE
        values["failed_step"] = failure.step if failure else None
        values["why"] = failure.what if failure else None
        values["summary"] = summary_text(self.playbook, self.progress, self._known())

    async def _tell_without_record(self, error: OrchError) -> None:
        """The play stops here and is gone on with later; whoever would have been told at its end is told that now."""
        at = self.progress.open_step or next(reversed(self.progress.ended), self.playbook.steps[0].name)
        if self.progress.failure is None:
            self.progress.failure = Failure(at, error.what, error.evidence, error.way_out, error.exit_code)
            self._sum_up()
        for step in self.playbook.always:
            if step.operation == "notify" and step.name not in (*self.progress.ended, self.progress.open_step):
                with contextlib.suppress(Exception):  # what is wrong was said already
                    for name in self.targets[step.name][:1]:
                        await self._once(step, self.inventory.targets[name], again=False)

    def _open(self) -> None:
        if self.beginning.continues:
            self._write(CONTINUED, by=self.who)
            return
        self._write(
            PLAY,
            schema=SCHEMA,
            play=self.play_id,
            playbook=str(self.playbook.path),
            sha256=self.playbook.sha256,
            vars=dict(self.playbook.variables),
            targets={name: list(names) for name, names in self.targets.items()},
            inventory=str(self.inventory.path),
            by=self.who,
            values=dict(self.beginning.values),
            before=sorted(self.beginning.before),
        )

    async def _section(self, steps: tuple[Step, ...]) -> None:
        """The rest of them, up to the failure that counts."""
        for step in steps:
            if self.progress.failure is not None:
                return
            if step.name in self.progress.ended:
                continue
            if step.name in self.beginning.before:
                self._end(step, SKIPPED, "left out: the play begins after it")
                continue
            await self._step(step, decides=not step.may_fail)

    async def _at_the_end(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if step.name not in self.progress.ended:
                await self._step(step, decides=False)

    async def _step(self, step: Step, *, decides: bool) -> None:
        again = self.progress.open_step == step.name
        if not again and step.when is not None and not step.when.holds(self._known()):
            self._end(step, SKIPPED, f"not done: {step.when.text}")
            return
        names = self.targets[step.name]
        self._write(BEGIN, step=step.name)
        self.watcher.on_begin(step, ", ".join(names))
        try:
            done = [await self._in_time(step, self.inventory.targets[name], again) for name in names]
        except OrchError as error:
            self._fail(step, error, decides=decides)
        except Exception as error:  # nobody is there at night: what is always to be done is done, whatever went wrong
            bug = OrchError(f"a bug in orch: {type(error).__name__}: {error}", evidence=traceback.format_exc())
            bug.exit_code = EXIT_BUG
            self._fail(step, bug, decides=decides)
        else:
            values = {key: value for one in done for key, value in one.values.items()}
            warning = "\n".join(one.warning for one in done if one.warning)
            self._end(step, DONE, "\n".join(one.said for one in done), values=values, warning=warning or None)

    async def _in_time(self, step: Step, target: Target, again: bool) -> Done:
        """With its repetitions under the one deadline. Raises OrchError."""
        try:
            async with asyncio.timeout(step.deadline_s):
                return await self._with_retries(step, target, again)
        except TimeoutError as error:
            assert step.deadline_s is not None
            raise DeadlineError(
                f"step `{step.name}` was not done within {duration_words(step.deadline_s)}",
                evidence="what it began on the target may go on",
                way_out="orch status",
            ) from error

    async def _with_retries(self, step: Step, target: Target, again: bool) -> Done:
        if step.retry is None:
            return await self._once(step, target, again)

        def before_pause(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            pause_s = state.next_action.sleep if state.next_action else 0.0
            self.watcher.say(step, f"{error}; tried again in {duration_words(pause_s)}")

        trying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(step.retry.times + 1),
            wait=tenacity.wait_exponential(multiplier=step.retry.wait_s, max=max(LONGEST_PAUSE_S, step.retry.wait_s)),
            retry=tenacity.retry_if_exception(may_pass),
            sleep=self.sleep,
            before_sleep=before_pause,
            reraise=True,
        )
        async for attempt in trying:
            with attempt:
                return await self._once(step, target, again or attempt.retry_state.attempt_number > 1)
        raise AssertionError("tenacity gives a result or raises")

    async def _once(self, step: Step, target: Target, again: bool) -> Done:
        def note(facts: Mapping[str, object]) -> None:
            self._write(NOTE, step=step.name, facts=dict(facts))

        at = At(
            target=target,
            inventory=self.inventory,
            known=self._known(),
            noted=dict(self.progress.noted.get(step.name, {})),
            note=note,
            begun_runs=self.progress.begun_runs,
            again=again,
            say=lambda text: self.watcher.say(step, text),
            on_status=self.watcher.on_status,
            play_id=self.play_id,
            trace=self.trace,
        )
        return await self.doing[step.operation](at, self._options(step))

    def _options(self, step: Step) -> object:
        """With every variable filled in, and checked once more. Raises InventoryError."""
        written = step.options.model_dump(by_alias=True)
        filled = fill_in(written, self._known())
        try:
            return type(step.options).model_validate(filled)
        except ValueError as error:
            raise InventoryError(
                f"{self.playbook.path}:{step.line}: step `{step.name}`: what its variables came to cannot be used",
                evidence=str(error),
            ) from error

    def _known(self) -> dict[str, object]:
        began = self.progress.header.get("at")
        at = datetime.fromtimestamp(float(began) if isinstance(began, int | float) else self.clock(), UTC)
        first = self.targets[self.playbook.steps[0].name]
        own = {
            "play_id": self.play_id,
            "playbook": self.playbook.path.stem,
            "target": ", ".join(first),
            "date": f"{at:%Y%m%d}",
            "time": f"{at:%H%M%S}",
        }
        return {**self.playbook.variables, **self.progress.values, **own}

    def _fail(self, step: Step, error: OrchError, *, decides: bool) -> None:
        failure = Failure(step.name, error.what, error.evidence[-MAX_EVIDENCE:], error.way_out, error.exit_code)
        self._end(step, FAILED, error.what, failure=failure_record(failure), decides=decides)

    def _end(self, step: Step, how: str, said: str, **more: object) -> None:
        self._write(END, step=step.name, how=how, said=said[:MAX_EVIDENCE], **more)
        self.watcher.on_end(step, how, said)

    def _write(self, what: str, **facts: object) -> None:
        line = {"what": what, "at": self.clock(), **facts}
        self.append(line)
        self.progress.take(line)

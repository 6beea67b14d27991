"""How a play goes: failures, what is done at the end, repetitions, and going on after it was cut off at any point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.errors import AgentOpError
from orchestrator.cli.output import Output
from orchestrator.cli.play_command import watcher_of
from orchestrator.errors import (
    NotAsWantedError,
    OrchError,
    OutcomeUnknownError,
    PreflightError,
    RunFailedError,
    TransferError,
    UnreachableError,
    UsageError,
)
from orchestrator.inventory.model import Inventory
from orchestrator.inventory.read import read_inventory
from orchestrator.playbook.begin import choose_beginning
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.model import Playbook
from orchestrator.playbook.progress import Progress, read_progress
from orchestrator.playbook.read import read_playbook
from orchestrator.playbook.relations import targets_of
from orchestrator.playbook.run import Play, Watcher
from orchestrator.playbook.variables import LET_THROUGH

INVENTORY = read_inventory(
    "hosts:\n  box:\n    address: 127.0.0.1\n    containers:\n      ct200: {id: 200}\n      ct201: {id: 201}\n"
    "groups: {both: [ct200, ct201]}\n",
    Path("/project/inventory.yaml"),
    Path("/home/me"),
)
NIGHT = """
target: ct200
steps:
  - deploy
  - launch
  - wait: {until: finished}
  - evaluate
  - gate
  - publish: {to: /srv}
on_failure:
  - stop
  - diff
always:
  - notify: {command: [tell], text: "${outcome}: ${why}"}
"""


class KilledError(BaseException):
    """kill -9: nothing after it is executed."""


class World:
    """What the steps do is written down here; what should go wrong is told here."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.did: list[str] = []
        self.started: list[str] = []
        self.faults: dict[str, list[BaseException]] = {}
        self.pauses: list[float] = []
        self.kill_after: int | None = None
        """So many lines of the record more are written."""
        self.full_after: int | None = None
        """So many lines in all have room."""
        self.told: list[str] = []

    def append(self, line: Mapping[str, object]) -> None:
        if self.kill_after == 0:
            raise KilledError
        if self.full_after is not None and len(self.lines) >= self.full_after:
            raise OrchError("no space for the record")
        self.lines.append(json.dumps(line).encode())
        if self.kill_after is not None:
            self.kill_after -= 1

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def doing(self) -> dict[str, Any]:
        names = ("deploy", "wait", "evaluate", "gate", "publish", "stop", "diff", "run", "status", "cache save")
        return {**{name: self._simple(name) for name in names}, "launch": self._launch, "notify": self._notify}

    def _simple(self, name: str) -> Any:
        async def do(at: At, options: Any) -> Done:
            self.did.append(f"{name} {at.target.name}" if at.target.name != "ct200" else name)
            self._fault(name)
            return Done(f"{name} done", {"tau": 3.0} if name == "evaluate" else {})

        return do

    async def _launch(self, at: At, options: Any) -> Done:
        run_id = str(at.noted.get("run_id") or f"run{len(self.started) + 1}")
        at.note({"run_id": run_id})
        if run_id not in self.started:  # the target refuses an id that it has
            self.started.append(run_id)
            self.did.append("launch")
        self._fault("launch")
        return Done(f"{run_id} started", {"run_id": run_id})

    async def _notify(self, at: At, options: Any) -> Done:
        self.told.append(options.text)
        return Done("told")

    def _fault(self, name: str) -> None:
        if self.faults.get(name):
            raise self.faults[name].pop(0)


async def go(world: World, text: str = NIGHT, *, start: str | None = None, afresh: bool = False) -> Progress:
    """`orch play` as it is at the next start: all that is known is the record."""
    playbook, inventory = read(text)
    targets = targets_of(playbook, inventory)
    earlier = read_progress(world.lines)
    beginning = choose_beginning(playbook, targets, inventory.path, earlier, start, afresh=afresh)
    if not beginning.continues:
        world.lines.clear()
    return await Play(
        playbook=playbook,
        inventory=inventory,
        targets=targets,
        play_id=earlier.play_id if beginning.continues else "p1",
        doing=world.doing(),
        append=world.append,
        progress=earlier if beginning.continues else Progress(),
        beginning=beginning,
        who="me@here",
        watcher=Watcher(),
        clock=lambda: 1_800_000_000.0,
        sleep=world.sleep,
    ).run()


def read(text: str) -> tuple[Playbook, Inventory]:
    return read_playbook(text, Path("/project/night.yaml")), INVENTORY


async def test_steps_are_done_in_order_and_what_is_always_done_comes_last() -> None:
    world = World()
    progress = await go(world)
    assert world.did == ["deploy", "launch", "wait", "evaluate", "gate", "publish"]
    assert (progress.over, progress.failure, world.told) == ("done", None, ["done: -"])
    assert progress.values["run_id"] == "run1"


async def test_a_failure_ends_the_steps_and_tells_why_once() -> None:
    world = World()
    world.faults = {"gate": [NotAsWantedError("tau is worse", way_out="orch diff")], "stop": [PreflightError("no")]}
    progress = await go(world)
    assert world.did == ["deploy", "launch", "wait", "evaluate", "gate", "stop", "diff"]
    assert world.told == ["failed: tau is worse"]
    assert progress.failure is not None
    assert (progress.failure.step, progress.failure.exit_code, progress.over) == ("gate", 14, "failed")
    assert "failed in `gate`: tau is worse" in str(progress.values["summary"])
    assert "-> orch diff" in str(progress.values["summary"])
    assert "-> orch play /project/night.yaml --from gate   goes on there" in str(progress.values["summary"])


async def test_of_a_traceback_the_summary_tells_the_end() -> None:
    world = World()
    frames = "".join(f'  File "/root/a{n}.py", line {n}, in work\n    work()\n' for n in range(9))
    said = f"Traceback (most recent call last):\n{frames}ModuleNotFoundError: No module named 'torch'"
    world.faults = {"launch": [RunFailedError("run r1 failed: exit code 1", evidence=said)]}
    summary = str((await go(world)).values["summary"])
    assert "No module named 'torch'" in summary and "/root/a0.py" not in summary


async def test_a_bug_is_a_failure_like_another() -> None:
    world = World()
    world.faults = {"wait": [KeyError("x")]}
    progress = await go(world)
    assert progress.failure is not None and progress.failure.exit_code == 70
    assert world.told == ["failed: a bug in orch: KeyError: 'x'"] and "publish" not in world.did


async def test_a_step_may_fail() -> None:
    world = World()
    world.faults = {"deploy": [PreflightError("no")]}
    progress = await go(world, "target: ct200\nsteps:\n  - deploy: {}\n    on_failure: continue\n  - launch\n")
    assert (progress.over, world.did) == ("done", ["deploy", "launch"])
    assert progress.ended == {"deploy": "failed", "launch": "done"}
    assert "note: deploy: no" in str(progress.values["summary"])


async def test_conditions_and_targets() -> None:
    world = World()
    text = (
        "vars: {n: 3, fast: false}\ntarget: ct200\nsteps:\n  - deploy: {}\n    target: both\n    when: ${n} >= 3\n"
        "  - status: {}\n    when: ${fast}\n  - stop: {}\n    when: not ${fast} and ${target} == ct200, ct201\n"
    )
    progress = await go(world, text)
    assert world.did == ["deploy", "deploy ct201", "stop"]
    assert progress.ended["status"] == "skipped"


async def test_a_step_that_is_not_done_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    playbook = read_playbook("target: ct200\nsteps:\n  - deploy: {}\n    name: ship it\n", Path("/project/x.yaml"))
    watcher_of(Output(verbose=False), quiet=False).on_end(playbook.steps[0], "skipped", "not done: ${fast}")
    assert capsys.readouterr().err == "ship it: not done: ${fast}\n"


async def test_what_passes_is_tried_again_after_longer_and_longer_pauses() -> None:
    world = World()
    text = "target: ct200\nsteps:\n  - deploy: {}\n    retry: {times: 3, wait: 10s}\n"
    world.faults = {"deploy": [UnreachableError("gone"), OutcomeUnknownError("cut"), UnreachableError("gone")]}
    assert (await go(world, text)).over == "done"
    assert (world.pauses, len(world.did)) == ([10, 20, 40], 4)


async def test_what_does_not_pass_is_not_tried_again() -> None:
    world = World()
    text = "target: ct200\nsteps:\n  - deploy: {}\n    retry: {times: 3, wait: 10s}\n"
    world.faults = {"deploy": [PreflightError("no payload")]}
    assert (await go(world, text)).over == "failed"
    assert (world.pauses, len(world.did)) == ([], 1)


async def test_a_deadline_holds_over_all_tries() -> None:
    world = World()
    text = "target: ct200\nsteps:\n  - deploy: {}\n    deadline: 1s\n    retry: {times: 9, wait: 10s}\n"
    world.faults = {"deploy": [UnreachableError("gone")] * 9}
    world.sleep = asyncio.sleep  # type: ignore[method-assign]
    progress = await go(world, text)
    assert progress.failure is not None and progress.failure.exit_code == 12
    assert "`deploy` was not done within 1s" in progress.failure.what


async def test_wherever_it_is_cut_off_it_goes_on_and_starts_one_run() -> None:
    whole = World()
    await go(whole)
    for cut in range(len(whole.lines)):
        world = World()
        world.kill_after = cut
        with pytest.raises(KilledError):
            await go(world)
        world.kill_after = None
        progress = await go(world)
        assert progress.over == "done", cut
        assert world.started == ["run1"], cut
        once = list(dict.fromkeys(world.did))
        assert once == ["deploy", "launch", "wait", "evaluate", "gate", "publish"], cut
        assert len(world.did) <= len(once) + 1, cut  # only what was under way is done again
        assert set(world.told) == {"done: -"}, cut


async def test_cut_off_twice_while_it_fails() -> None:
    faults: dict[str, list[BaseException]] = {"wait": [NotAsWantedError("the loss is nan")]}
    whole = World()
    whole.faults = {name: list(errors) for name, errors in faults.items()}
    await go(whole)
    failed_at = next(n for n, line in enumerate(whole.lines) if b'"decides": true' in line)
    for cut in range(failed_at + 1, len(whole.lines)):
        world = World()
        world.faults = {name: list(errors) for name, errors in faults.items()}
        world.kill_after = cut
        with pytest.raises(KilledError):
            await go(world)
        world.kill_after = None
        progress = await go(world)
        assert (progress.over, progress.failure and progress.failure.what) == ("failed", "the loss is nan"), cut
        assert world.did[:3] == ["deploy", "launch", "wait"] and set(world.did[3:]) == {"stop", "diff"}, cut
        assert len(world.did) <= 6, cut
        assert set(world.told) == {"failed: the loss is nan"}, cut


async def test_what_is_not_safe_to_repeat_is_not_repeated() -> None:
    world = World()
    text = "target: ct200\nsteps:\n  - run: {argv: [make]}\n  - deploy\n"
    world.faults = {"run": [KilledError()]}
    with pytest.raises(KilledError):
        await go(world, text)
    with pytest.raises(OutcomeUnknownError) as caught:
        await go(world, text)
    assert "cut off in step `run`" in caught.value.what
    assert "--from 'deploy'     goes on behind it" in caught.value.way_out
    assert world.did == ["run"]
    assert (await go(world, text, start="deploy")).over == "done" and world.did == ["run", "deploy"]


async def test_another_playbook_is_not_gone_on_with() -> None:
    world = World()
    world.faults = {"wait": [KilledError()]}
    with pytest.raises(KilledError):
        await go(world)
    changed = NIGHT.replace("/srv", "/srv/other")
    with pytest.raises(UsageError) as caught:
        await go(world, changed)
    assert "cut off at `wait`, and since then its text changed; nothing was done" in caught.value.what
    assert (await go(world, changed, afresh=True)).over == "done"


async def test_from_takes_over_what_is_known() -> None:
    world = World()
    world.faults = {"publish": [PreflightError("no space left")]}
    await go(world)
    world.did.clear()
    progress = await go(world, start="publish")
    assert (world.did, progress.over) == (["publish"], "done")
    assert (progress.values["run_id"], progress.values["tau"]) == ("run1", 3.0)
    assert progress.ended["launch"] == "skipped"
    with pytest.raises(UsageError) as caught:
        await go(world, start="publsh")
    assert caught.value.way_out == "did you mean `publish`?"


async def test_from_launch_forgets_the_run_before() -> None:
    world = World()
    world.faults = {"gate": [NotAsWantedError("worse")], "launch": []}
    await go(world)
    world.faults = {"launch": [PreflightError("no GPU")]}
    progress = await go(world, start="launch")
    assert progress.failure is not None and progress.failure.step == "launch"
    assert "run_id" not in progress.values and "tau" not in progress.values


async def test_a_full_disk_is_not_tried_again() -> None:
    world = World()
    error = TransferError("no space left")
    error.__cause__ = AgentOpError("disk_full", "no space left", "")
    world.faults = {"deploy": [error]}
    progress = await go(world, "target: ct200\nsteps:\n  - deploy: {}\n    retry: {times: 3}\n")
    assert (progress.over, world.pauses) == ("failed", [])


async def test_after_a_failure_it_begins_anew() -> None:
    world = World()
    world.faults = {"gate": [NotAsWantedError("worse")]}
    await go(world)
    world.did.clear()
    assert (await go(world)).over == "done"
    assert world.did[0] == "deploy" and world.did.count("launch") == 1


def test_a_torn_line_is_read_over() -> None:
    lines = [b'{"what":"play","play":"p","at":1}', b'{"what":"begin","step":"deploy"}', b'{"what":"end","st']
    progress = read_progress(lines)
    assert (progress.play_id, progress.open_step, progress.over) == ("p", "deploy", None)


async def test_what_a_gate_let_through_counts_for_the_steps_behind_it_only() -> None:
    world = World()
    world.append({"what": "play", "play": "p0"})
    world.append({"what": "end", "step": "gate", "how": "done", "values": {LET_THROUGH: {"/srv": {"run": "r1"}}}})
    world.append({"what": "over", "outcome": "failed"})
    playbook, inventory = read(NIGHT)
    for start, kept in (("publish", True), ("gate", False), ("launch", False)):
        earlier = read_progress(world.lines)
        targets = targets_of(playbook, inventory)
        values = choose_beginning(playbook, targets, inventory.path, earlier, start, afresh=False).values
        assert (LET_THROUGH in values) is kept, start


async def test_another_inventory_is_another_machine(tmp_path: Path) -> None:
    world = World()
    world.kill_after = 5
    with pytest.raises(KilledError):
        await go(world)
    playbook, inventory = read(NIGHT)
    earlier, targets = read_progress(world.lines), targets_of(playbook, inventory)
    with pytest.raises(UsageError, match=r"its inventory \(-i\) changed; nothing was done"):
        choose_beginning(playbook, targets, tmp_path / "inventory.yaml", earlier, None, afresh=False)


@pytest.mark.parametrize("lines", range(16))
async def test_a_record_that_cannot_be_written_tells_why_once(lines: int) -> None:
    """The controller's disk is full after so many lines."""
    world = World()
    world.full_after = lines
    with pytest.raises(OrchError, match="no space"):
        await go(world)
    step = next((json.loads(line)["step"] for line in reversed(world.lines) if b"step" in line), "deploy")
    assert len(world.told) == 1, world.lines
    assert world.told[0] == ("done: -" if step == "notify" else "failed: no space for the record")
    world.full_after, told = None, len(world.told)
    assert (await go(world)).over == "done"
    assert len(world.started) == 1 and len(world.told) <= told + 1

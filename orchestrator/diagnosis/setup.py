"""Is a new target fit to be trained on? What it said -> a row for each thing that a launch needs.

Rule: pure; a row that could not be looked at is neither well nor wrong, and says why. A wrong one has its way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.diagnosis.signatures.link import CLOCK_S
from orchestrator.inventory.model import Payload, Target
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.preflight import GIB, LOW_INODES
from orchestrator.probes.units import bytes_text

OLDEST_PYTHON = (3, 8)
SHM_BYTES = 1 * GIB
"""Docker's 64 MB are less; data workers hand their batches over in it."""
STARTED = "the target was not reached"


@dataclass(frozen=True)
class Row:
    name: str
    ok: bool | None
    """None: it could not be looked at, or need not be."""
    text: str
    way_out: str = ""


@dataclass(frozen=True, kw_only=True)
class SetupFacts:
    """What was said. Unknown is None."""

    agent_python: str | None = None
    is_root: bool | None = None
    host_ok: bool | None = None
    """Whether an agent can work on the host, too."""
    why_no_host: str = ""
    python_path: str | None = None
    python_version: str | None = None
    python_error: str | None = None
    environment: str | None = None
    """That orch made and that is current for the payload's purpose."""
    tmux_version: str | None = None
    tmux_error: str | None = None
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    root_writable: bool | None = None
    shm_bytes: int | None = None
    """Free in /dev/shm."""
    gpus: tuple[GpuFact, ...] | None = None
    gpu_error: str | None = None
    gpu_warnings: tuple[str, ...] = ()
    command_found: bool | None = None
    command_lacks: str | None = None
    """The script that the payload's command names and its release has not."""
    paths: tuple[tuple[str, bool], ...] = ()
    clock_offset_s: float | None = None
    release: str | None = None
    torch_wanted_by: str | None = None
    """A file of the release that imports it; None also where nothing is deployed."""
    has_torch: bool | None = None
    """Whether the environment that the command runs in holds it. None also where that is not there yet."""


def rows(target: Target, facts: SetupFacts) -> tuple[Row, ...]:
    """Of a target that was reached."""
    found = [
        Row("ssh", True, f"{target.host.login}: reached, its key is known, the login is accepted"),
        _container(target),
        _agent(facts),
        _host(target, facts),
        _clock(facts),
        *_root(target, facts),
        _shm(facts),
    ]
    payload = target.payload
    if payload is None:
        found.append(
            Row("payload", False, "the inventory gives this target none", f"write `payload:` of {target.name}")
        )
        return tuple(found)
    found += [_python(payload, facts), *_torch(payload, facts), _command(payload, facts)]
    found += [_tmux(payload, facts), _gpus(payload, facts)]
    found += _paths(facts)
    release = (
        "nothing is deployed yet" if facts.release is None else f"deployed: {facts.release.rsplit('/', 1)[-1][:12]}"
    )
    found.append(
        Row("release", None if facts.release is None else True, release, "orch deploy" if not facts.release else "")
    )
    return tuple(found)


def not_reached(part: str, what: str, way_out: str, target: Target) -> tuple[Row, ...]:
    """part: ssh or pct, where it ended."""
    if part == "ssh":
        return (Row("ssh", False, what, way_out), Row("all else", None, STARTED))
    return (
        Row("ssh", True, f"{target.host.login}: reached, its key is known, the login is accepted"),
        Row("container", False, what, way_out),
        Row("all else", None, STARTED),
    )


def _container(target: Target) -> Row:
    if target.kind == "none":
        return Row("container", None, "work runs on the host itself")
    return Row("container", True, f"{target.container_id} runs, and {target.kind} gets into it")


def _agent(facts: SetupFacts) -> Row:
    version = facts.agent_python
    if version is None:
        return Row("python3", None, "the agent did not say which one it runs on")
    told = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return Row(
        "python3",
        told >= OLDEST_PYTHON,
        f"{version}, for the agent",
        "" if told >= OLDEST_PYTHON else "install Python 3.8 or newer, or name one in `python:` of the target",
    )


def _host(target: Target, facts: SetupFacts) -> Row:
    if target.kind == "none":
        return Row("host", None, "it is the target")
    if facts.host_ok:
        return Row("host", True, "can be looked at: whose the processes on the GPUs are, and the kernel's log")
    way_out = "install python3 on the host, or a login with `become: sudo`; all but `orch reset` works without"
    return Row("host", None, f"cannot be looked at: {facts.why_no_host}", way_out)


def _clock(facts: SetupFacts) -> Row:
    offset_s = facts.clock_offset_s
    if offset_s is None:
        return Row("time", None, "it did not tell its clock")
    ok = abs(offset_s) < CLOCK_S
    return Row("time", ok, f"{offset_s:+.0f} s beside this machine", "" if ok else "let a time server keep both clocks")


def _root(target: Target, facts: SetupFacts) -> Iterator[Row]:
    if facts.root_writable is not None:
        way_out = "" if facts.root_writable else f"another `root:` of {target.name}, or another login"
        text = f"{target.root} {'may' if facts.root_writable else 'may not'} be written to"
        yield Row("root", facts.root_writable, text, way_out)
    wanted = (target.payload.min_free_disk_gib if target.payload is not None else 1.0) * GIB
    free, inodes = facts.disk_free_bytes, facts.inodes_free
    if free is None:
        yield Row("disk", None, "it did not tell how much is free")
        return
    enough = free >= wanted and (inodes is None or inodes >= LOW_INODES)
    text = f"{bytes_text(free)} free, {bytes_text(wanted)} wanted" + (
        f", {inodes} inodes" if inodes is not None else ""
    )
    yield Row("disk", enough, text, "" if enough else "free some, or name a `root:` on another disk")


def _shm(facts: SetupFacts) -> Row:
    if facts.shm_bytes is None:
        return Row("/dev/shm", None, "it did not tell how much is free")
    ok = facts.shm_bytes >= SHM_BYTES
    way_out = "" if ok else "enlarge it in the container's configuration on the host (lxc.mount.entry of tmpfs, size=)"
    return Row("/dev/shm", ok, f"{bytes_text(facts.shm_bytes)} free", way_out)


def _python(payload: Payload, facts: SetupFacts) -> Row:
    if payload.environment is not None and payload.python is None:
        ok = facts.environment is not None
        text = f"environment {payload.environment}: " + (f"{facts.environment}" if ok else "not made yet")
        return Row("environment", ok, text, "" if ok else "orch env sync")
    if facts.python_error is not None:
        return Row(
            "environment", False, facts.python_error, "orch env sync, or `python:` of the payload names another one"
        )
    if facts.python_version is None:
        return Row("environment", None, "the inventory names no Python of the payload")
    return Row("environment", True, f"{facts.python_path}, Python {facts.python_version}")


def _torch(payload: Payload, facts: SetupFacts) -> Iterator[Row]:
    """Of a payload that does without, none."""
    if facts.release is None:
        yield Row("torch", None, "whether the payload imports it is seen once it is deployed")
    elif facts.torch_wanted_by is not None:
        says = f"{facts.torch_wanted_by} imports it"
        if facts.has_torch is not False:
            told = "the environment has it" if facts.has_torch else "whether the environment has it cannot be told"
            if payload.environment is not None and facts.environment is None:
                told = "the environment is not there yet"
            yield Row("torch", facts.has_torch, f"{says}, and {told}")
        elif payload.environment is not None:
            way_out = f"add it to the lock of `environments: {payload.environment}:`, then: orch env sync"
            yield Row("torch", False, f"{says}, and the environment has none", way_out)
        else:
            way_out = "install it there, or `python:` of the payload names an environment that has it"
            yield Row("torch", False, f"{says}, and the environment has none", way_out)


def _command(payload: Payload, facts: SetupFacts) -> Row:
    word = payload.command[0]
    if facts.command_lacks is not None:
        text = f"{' '.join(payload.command)}: the release has no {facts.command_lacks}"
        return Row("command", False, text, "see `command:` and `exclude:` of the payload, then orch deploy")
    if word == "python":
        ok = None if facts.python_version is None else True
        return Row("command", ok, f"{' '.join(payload.command)}, with that Python")
    if facts.command_found is None:
        return Row("command", None, f"{word}: not looked for")
    way_out = "" if facts.command_found else "install it there, or see `command:` of the payload"
    return Row("command", facts.command_found, f"{word} {'is' if facts.command_found else 'is not'} there", way_out)


def _tmux(payload: Payload, facts: SetupFacts) -> Row:
    if payload.session is None:
        return Row("tmux", None, "not wanted: `session: none`")
    if facts.tmux_error is not None:
        return Row("tmux", False, facts.tmux_error, "apt-get install tmux, or `session: none` in the payload")
    return Row("tmux", True if facts.tmux_version else None, facts.tmux_version or "it did not tell its version")


def _gpus(payload: Payload, facts: SetupFacts) -> Row:
    if not payload.devices:
        return Row("GPUs", None, "none are asked for")
    wanted = f"{payload.devices} wanted"
    if facts.gpus is None:
        way_out = "give the container the devices, and the driver's libraries of the host's version"
        return Row("GPUs", False, f"{facts.gpu_error or 'not known'}; {wanted}", way_out)
    broken = [*(f"GPU {gpu.index}: {gpu.error}" for gpu in facts.gpus if gpu.error), *facts.gpu_warnings]
    if len(facts.gpus) < payload.devices or broken:
        text = "; ".join([f"{len(facts.gpus)} there, {wanted}", *dict.fromkeys(broken)])
        return Row("GPUs", False, text, "see `topology:` and `devices:` of the payload, and orch doctor")
    kinds = ", ".join(dict.fromkeys(gpu.name or "a GPU" for gpu in facts.gpus))
    return Row("GPUs", True, f"{len(facts.gpus)} x {kinds}, {wanted}")


def _paths(facts: SetupFacts) -> Iterator[Row]:
    for path, there in facts.paths:
        yield Row(
            "path",
            there,
            f"{path} {'is' if there else 'is not'} there",
            "" if there else "see `data:` and `model:` of the payload; deploy ships neither",
        )

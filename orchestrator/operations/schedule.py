"""Play a playbook at a time of day: a systemd timer is written, listed, removed; where there is none, a cron line.

Rule: nothing is written before what the units say was shown, and was tried in the very environment that they give.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orchestrator.errors import OrchError, PreflightError, UsageError
from orchestrator.operations.timer_units import (
    DEFAULT_PATH,
    Job,
    When,
    calendars,
    environment_of,
    read_facts,
    service_text,
    timer_text,
)
from orchestrator.probes.text import plain_text

SYSTEM_FOLDER = Path("/etc/systemd/system")
CHECK_LIMIT_S = 90.0
TAKEN_OVER = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PYTHONPATH")
"""Where orch keeps its records, and what makes it start: the timer's plays and ours must see the same."""


@dataclass(frozen=True)
class Units:
    folder: Path
    service: str
    timer: str


@dataclass(frozen=True)
class Check:
    what: str
    problem: str
    """Empty: it works."""


@dataclass(frozen=True)
class Scheduled:
    name: str
    playbook: str
    at: str
    file: Path
    system: bool
    enabled: bool


def has_systemd(*, system: bool) -> bool:
    """Is there a manager that would run our units?"""
    if not Path("/run/systemd/system").is_dir():
        return False
    return system or _systemctl(["show-environment"], system=False).returncode == 0


def local_zone() -> str | None:
    """The machine's zone by name. None: it has no name."""
    try:
        target = os.path.realpath("/etc/localtime")
    except OSError:
        return None
    _, found, name = target.partition("/zoneinfo/")
    return name if found and _zone(name) is not None else None


def zone_of(name: str | None) -> tzinfo | None:
    """Raises UsageError for a zone that is not known."""
    if name is None:
        return None
    zone = _zone(name)
    if zone is None:
        raise UsageError(f"there is no time zone {name!r}", way_out="--tz Europe/Berlin   (timedatectl list-timezones)")
    return zone


def _zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def make_job(
    *,
    name: str,
    playbook: Path,
    words: Sequence[str],
    when: When,
    environment_file: Path | None,
    ssh_auth_sock: str | None,
    system: bool,
    catch_up: bool,
) -> Job:
    """words: of orch, after its program. Raises UsageError, PreflightError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name):
        raise UsageError(f"{name!r} cannot be part of a unit's name", way_out="--name nightly")
    about = pwd.getpwuid(os.getuid())
    variables = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"}
    if os.environ.get("HOME", about.pw_dir) != about.pw_dir:
        variables["HOME"] = os.environ["HOME"]
    variables.update({name: os.environ[name] for name in TAKEN_OVER if os.environ.get(name)})
    if ssh_auth_sock:
        variables["SSH_AUTH_SOCK"] = ssh_auth_sock
    return Job(
        name=name,
        playbook=str(playbook),
        argv=(sys.executable, "-m", "orchestrator", *words),
        folder=str(Path.cwd()),
        when=when,
        variables=variables,
        environment_file=_secret_file(environment_file),
        user=about.pw_name if system else None,
        catch_up=catch_up,
    )


def _secret_file(path: Path | None) -> str | None:
    if path is None:
        return None
    path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - the link's own name is what the unit says
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise UsageError(f"--env-file {path}: {error.strerror}", way_out="lines NAME=value, mode 0600") from error
    if mode & 0o077:
        raise PreflightError(
            f"{path} is for secrets, and others may read it", evidence=f"mode {mode:04o}", way_out=f"chmod 600 {path}"
        )
    return str(path)


def units_of(job: Job, *, system: bool) -> Units:
    zone = zone_of(job.when.zone)
    calendar = calendars(job.when, zone, datetime.now(UTC).date())
    return Units(units_folder(system=system), service_text(job), timer_text(job, calendar))


def units_folder(*, system: bool) -> Path:
    if system:
        return SYSTEM_FOLDER
    given = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(given) if given.startswith("/") else Path(pwd.getpwuid(os.getuid()).pw_dir) / ".config"
    return home / "systemd" / "user"


async def check_environment(job: Job, commands: Sequence[tuple[str, Sequence[str]]], *, system: bool) -> list[Check]:
    """commands: what is tried, and the words of orch that try it, each with the service's variables and no others."""
    environment = unit_environment(job, system=system)
    found = []
    # A connection that your shell has kept open would let in whom the timer's own login does not.
    apart = tempfile.mkdtemp(prefix="orch-")
    for what, words in commands:
        problem = await _try(job, [*job.argv[:3], *words], {**environment, "XDG_RUNTIME_DIR": apart})
        if problem and "SSH_AUTH_SOCK" in os.environ and "SSH_AUTH_SOCK" not in environment:
            problem += (
                "\nyour shell has an ssh-agent, the timer has none: name a key without a passphrase with"
                " `identity_file:` in the inventory, or an agent that is always there with --ssh-auth-sock PATH"
            )
        found.append(Check(what, problem))
    shutil.rmtree(apart, ignore_errors=True)
    if not system and os.getuid() != 0 and has_systemd(system=False):
        linger = _run(["loginctl", "show-user", str(os.getuid()), "-p", "Linger", "--value"])
        if linger.stdout.strip() == "no":
            found.append(
                Check("runs while you are logged out", "loginctl enable-linger   (or --system): it would not run then")
            )
    return found


def unit_environment(job: Job, *, system: bool) -> dict[str, str]:
    """The variables that its service will have, and no others. Raises PreflightError."""
    about = pwd.getpwuid(os.getuid())
    base = {"HOME": about.pw_dir, "USER": about.pw_name, "LOGNAME": about.pw_name, "SHELL": about.pw_shell}
    if not system:
        base["XDG_RUNTIME_DIR"] = f"/run/user/{os.getuid()}"
    try:
        text = Path(job.environment_file).read_text(encoding="utf-8") if job.environment_file else None
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"{job.environment_file} cannot be read",
            evidence=str(error),
            way_out="--env-file FILE that its user may read",
        ) from error
    return environment_of(job, base, text)


async def _try(job: Job, argv: Sequence[str], environment: dict[str, str]) -> str:
    """Empty: it worked."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=job.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            _, said = await process.communicate()
    except TimeoutError:
        return f"it did not end within {CHECK_LIMIT_S:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode == 0:
        return ""
    return plain_text(said.decode("utf-8", "replace")).strip()[-2000:] or f"exit code {process.returncode}"


def write_units(job: Job, units: Units, *, system: bool, offline: bool) -> list[Path]:
    """Both files, and the link that starts the timer with the machine; then, unless offline, the timer is started.

    Raises UsageError where another playbook has the name, OrchError.
    """
    service, timer = (units.folder / f"{job.unit}.{kind}" for kind in ("service", "timer"))
    for path in (service, timer):
        if path.exists():
            known = read_facts(service.read_text(encoding="utf-8")) if service.exists() else None
            if known is None or known.get("playbook") != job.playbook:
                raise UsageError(
                    f"{path} is there and plays {(known or {}).get('playbook') or 'something else'}",
                    way_out="--name ANOTHER",
                )
    wanted = units.folder / "timers.target.wants" / timer.name
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        _write(service, units.service)
        _write(timer, units.timer)
        wanted.unlink(missing_ok=True)
        wanted.symlink_to(timer)
    except OSError as error:
        raise OrchError(
            f"{units.folder}: the units cannot be written",
            evidence=str(error),
            way_out="with --system they go below /etc, which takes root; without it below your home",
        ) from error
    if not offline:
        _require(["daemon-reload"], system=system)
        _require(["restart", timer.name], system=system)
    return [service, timer, wanted]


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(path)


def list_scheduled() -> list[Scheduled]:
    found = []
    for system in (False, True):
        folder = units_folder(system=system)
        for path in sorted(folder.glob("orch-*.service")):
            with contextlib.suppress(OSError, ValueError):
                facts = read_facts(path.read_text(encoding="utf-8"))
                if facts is None:
                    continue
                timer = path.with_suffix(".timer")
                found.append(
                    Scheduled(
                        name=path.stem.removeprefix("orch-"),
                        playbook=str(facts.get("playbook")),
                        at=str(facts.get("at")),
                        file=path,
                        system=system,
                        enabled=timer.exists() and (folder / "timers.target.wants" / timer.name).is_symlink(),
                    )
                )
    return found


def find_scheduled(name: str) -> Scheduled:
    """Raises UsageError."""
    there = list_scheduled()
    found = [one for one in there if one.name == name]
    if not found:
        raise UsageError(
            f"nothing is scheduled as {name!r}",
            evidence="there are: " + (", ".join(one.name for one in there) or "none"),
            way_out="orch schedule list",
        )
    return found[0]


def last_result(one: Scheduled) -> str | None:
    """`success, 2026-...`. None: nobody knows."""
    if not has_systemd(system=one.system):
        return None
    wanted = "ActiveState,Result,ExecMainStatus,ExecMainExitTimestamp"
    done = _systemctl(["show", one.file.name, "-p", wanted], system=one.system)
    facts = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if facts.get("ActiveState") == "activating":
        return "is being played"
    if not facts.get("ExecMainExitTimestamp"):
        return None
    return f"{facts.get('Result')} (exit code {facts.get('ExecMainStatus')}), {facts['ExecMainExitTimestamp']}"


def remove_scheduled(one: Scheduled) -> list[Path]:
    """What was removed. A play that is under way goes on."""
    timer = one.file.with_suffix(".timer")
    managed = has_systemd(system=one.system)
    if managed:
        _systemctl(["stop", timer.name], system=one.system)
    gone = []
    for path in (one.file.parent / "timers.target.wants" / timer.name, timer, one.file):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            gone.append(path)
    if managed:
        _require(["daemon-reload"], system=one.system)
    return gone


def start_now(one: Scheduled) -> bool:
    """True: its service was started. False: there is no manager here that could."""
    if not has_systemd(system=one.system):
        return False
    _require(["start", "--no-block", one.file.name], system=one.system)
    return True


def job_of(one: Scheduled) -> Job:
    """As its service says, to be run without a manager. Raises OrchError."""
    facts = read_facts(one.file.read_text(encoding="utf-8")) or {}
    argv, variables = facts.get("argv"), facts.get("variables")
    if not isinstance(argv, list) or not isinstance(variables, dict):
        raise OrchError(f"{one.file} cannot be read", way_out=f"orch schedule remove {one.name}, then schedule it anew")
    file = facts.get("environment_file")
    return Job(
        name=one.name,
        playbook=one.playbook,
        argv=tuple(map(str, argv)),
        folder=str(facts.get("folder")),
        when=When((), 0, 0, None),
        variables={str(name): str(value) for name, value in variables.items()},
        environment_file=str(file) if file else None,
        user=None,
        catch_up=False,
    )


def run_here(job: Job, *, system: bool) -> int:
    """The service's command line in its environment, in the foreground; its exit code."""
    return subprocess.run(
        list(job.argv), cwd=job.folder, env=unit_environment(job, system=system), check=False
    ).returncode


def _systemctl(words: Sequence[str], *, system: bool) -> subprocess.CompletedProcess[str]:
    return _run(["systemctl", *([] if system else ["--user"]), "--no-ask-password", *words])


def _require(words: Sequence[str], *, system: bool) -> None:
    done = _systemctl(words, system=system)
    if done.returncode != 0:
        raise OrchError(
            f"systemctl {' '.join(words)} failed", evidence=done.stderr.strip(), way_out="orch schedule list"
        )


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))

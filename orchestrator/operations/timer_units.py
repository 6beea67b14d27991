"""When a playbook is played, and the systemd units and the cron line that say so.

Rule: pure; the time, the zone's rules and the environment come as arguments.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from orchestrator.errors import UsageError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHORT = tuple(day.lower() for day in DAYS)
LONG = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
GAP_YEARS = 10
MARK = "# Written by `orch schedule`; `orch schedule remove NAME` removes it."
FACTS = "# orch: "
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class When:
    days: tuple[int, ...]
    """0 is Monday; all seven for every day. Sorted."""
    hour: int
    minute: int
    zone: str | None
    """None: whatever the machine's zone is then."""

    @property
    def text(self) -> str:
        days = "" if len(self.days) == 7 else ",".join(DAYS[day] for day in self.days) + " "
        return f"{days}{self.hour:02d}:{self.minute:02d}" + (f" {self.zone}" if self.zone else "")


@dataclass(frozen=True)
class Job:
    """Everything that the two units say."""

    name: str
    playbook: str
    argv: tuple[str, ...]
    folder: str
    """Working directory: relative paths of the playbook start there."""
    when: When
    variables: Mapping[str, str]
    """Environment= lines."""
    environment_file: str | None
    user: str | None
    """For a system unit."""
    catch_up: bool
    """Play at the next start of the machine what was missed while it was off."""

    @property
    def unit(self) -> str:
        return f"orch-{self.name}"


def parse_at(text: str, zone: str | None) -> When:
    """`02:00`, `Sun 03:30`, `Mon..Fri 02:00`, `Mon,Thu 02:00`. Raises UsageError."""
    found = re.fullmatch(r"(?:(?P<days>[A-Za-z.,]+)\s+)?(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})", text.strip())
    hour, minute = (int(found["hour"]), int(found["minute"])) if found else (99, 99)
    if found is None or hour > 23 or minute > 59:
        raise UsageError(f"--at {text!r} is not a time of day", way_out='--at 02:00, or --at "Mon..Fri 02:00"')
    days = sorted({day for word in (found["days"] or "Mon..Sun").split(",") for day in _days(word, text)})
    return When(tuple(days), hour, minute, zone)


def _days(word: str, text: str) -> Iterator[int]:
    first, dots, last = word.partition("..")
    try:
        begin = _day(first)
        end = _day(last) if dots else begin
    except ValueError:
        raise UsageError(f"--at {text!r}: {word!r} is not a day of the week", way_out='--at "Mon..Fri 02:00"') from None
    yield from range(begin, end + 1) if begin <= end else (*range(begin, 7), *range(end + 1))


def _day(word: str) -> int:
    """`Mon` or `Monday`. Raises ValueError."""
    return (SHORT if len(word) == 3 else LONG).index(word.lower())


def next_times(when: When, zone: tzinfo, now: datetime, count: int) -> list[datetime]:
    """In UTC, after now. A time that the zone leaves out is as much later; one that it has twice is the first."""
    found: list[datetime] = []
    day = now.astimezone(zone).date() - timedelta(days=1)
    while len(found) < count:
        if day.weekday() in when.days:
            at = datetime.combine(day, time(when.hour, when.minute), zone).astimezone(UTC)
            if at > now:
                found.append(at)
        day += timedelta(days=1)
    return found


def left_out(when: When, zone: tzinfo, first: date) -> list[datetime]:
    """Where the clocks go forward over this time, in the next years: the local time that it is instead."""
    found = []
    for offset in range(366 * GAP_YEARS):
        day = first + timedelta(days=offset)
        local = datetime.combine(day, time(when.hour, when.minute), zone)
        there = local.astimezone(UTC).astimezone(zone)
        if day.weekday() in when.days and there.replace(tzinfo=None) != local.replace(tzinfo=None):
            found.append(there)
    return found


def calendars(when: When, zone: tzinfo | None, first: date) -> list[str]:
    """OnCalendar= values. systemd plays nothing on a night that leaves the time out, so those are named one by one."""
    days = "" if len(when.days) == 7 else ",".join(DAYS[day] for day in when.days) + " "
    ending = f" {when.zone}" if when.zone else ""
    gaps = left_out(when, zone, first) if zone is not None else []
    return [
        f"{days}*-*-* {when.hour:02d}:{when.minute:02d}:00{ending}",
        *(f"{gap:%Y-%m-%d %H:%M:%S}{ending}" for gap in gaps),
    ]


def timer_text(job: Job, calendar: Sequence[str]) -> str:
    lines = [
        MARK,
        "[Unit]",
        f"Description=When orch plays {_plain(job.playbook)}",
        "",
        "[Timer]",
        *(f"OnCalendar={value}" for value in calendar),
        f"Persistent={'true' if job.catch_up else 'false'}",
        "RandomizedDelaySec=0",
        "AccuracySec=1s",
        f"Unit={job.unit}.service",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


def service_text(job: Job) -> str:
    facts = {"playbook": job.playbook, "at": job.when.text, "argv": list(job.argv), "folder": job.folder}
    lines = [
        MARK,
        FACTS + json.dumps({**facts, "variables": dict(job.variables), "environment_file": job.environment_file}),
        "[Unit]",
        f"Description=orch play {_plain(job.playbook)}",
    ]
    if job.user is not None:
        lines += ["Wants=network-online.target", "After=network-online.target"]
    # Killed from outside, it goes on where it was; what failed by itself, or was stopped, is left to a person.
    lines += ["StartLimitIntervalSec=1h", "StartLimitBurst=4", "", "[Service]", "Type=oneshot"]
    lines += [f"User={job.user}"] if job.user is not None else []
    lines += [f"WorkingDirectory={job.folder.replace('%', '%%')}"]
    lines += [f"Environment={quoted(f'{name}={value}')}" for name, value in job.variables.items()]
    lines += [f"EnvironmentFile={job.environment_file.replace('%', '%%')}"] if job.environment_file else []
    if "SSH_AUTH_SOCK" not in job.variables:
        lines += ["UnsetEnvironment=SSH_AUTH_SOCK"]
    lines += [
        "ExecStart=" + " ".join([quoted(job.argv[0]), *(quoted(word, command=True) for word in job.argv[1:])]),
        "TimeoutStartSec=infinity",
        "Restart=on-abnormal",
        "RestartSec=60",
    ]
    return "\n".join(lines) + "\n"


def read_facts(service: str) -> dict[str, object] | None:
    """What `service_text` was made of. None: not ours."""
    lines = service.splitlines()
    if lines[:1] != [MARK] or len(lines) < 2 or not lines[1].startswith(FACTS):
        return None
    try:
        facts = json.loads(lines[1].removeprefix(FACTS))
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def quoted(word: str, *, command: bool = False) -> str:
    """One word of a unit file's line. command: of ExecStart, where `$` begins a variable."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    if command:
        text = text.replace("$", "$$")
    return text if re.fullmatch(r"[\w@%+=:,./$-]+", text, re.ASCII) else f'"{text}"'


def cron_line(job: Job) -> str:
    """For `crontab -e`. A `%` ends a command there unless it is escaped."""
    words = list(job.argv)
    if job.environment_file:
        script = f"set -a; . {shlex.quote(job.environment_file)}; exec {shlex.join(words)}"
        words = ["/bin/sh", "-c", script]
    command = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in job.variables.items()), *words])
    days = "*" if len(job.when.days) == 7 else ",".join(str((day + 1) % 7) for day in job.when.days)
    line = f"{job.when.minute} {job.when.hour} * * {days} cd {shlex.quote(job.folder)} && {command}"
    return line.replace("%", "\\%")


def environment_of(job: Job, base: Mapping[str, str], file_text: str | None) -> dict[str, str]:
    """What the service sees. base: of its manager."""
    found = {**base, **job.variables}
    found.update(parse_environment_file(file_text or ""))
    if "SSH_AUTH_SOCK" not in job.variables:
        found.pop("SSH_AUTH_SOCK", None)
    return found


def parse_environment_file(text: str) -> dict[str, str]:
    """Lines NAME=value, as systemd reads them: comments begin with # or ;, a value may be quoted."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        name = name.rstrip()
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name] = value
    return found


def _plain(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")

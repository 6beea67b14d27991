"""orch schedule: a playbook at a time of day; what is scheduled; remove it; run it now."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.cli.output import Output
from orchestrator.errors import PreflightError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.operations import schedule
from orchestrator.operations.notify import read_reference
from orchestrator.operations.timer_units import Job, cron_line, left_out, next_times, parse_at
from orchestrator.playbook.play import Loaded, load_playbook
from orchestrator.playbook.schema import NotifyOptions, PublishOptions
from orchestrator.reports.table import DASH, render_rows

SHOWN = 3
UTC_FORMAT, LOCAL_FORMAT = "%Y-%m-%d %H:%M UTC", "%a %Y-%m-%d %H:%M %Z"


def run(arguments: argparse.Namespace, output: Output) -> int:
    words: list[str] = arguments.words
    verb = words[0]
    if verb == "list" and len(words) == 1:
        return _list(output)
    if verb in ("remove", "run-now"):
        if len(words) != 2:
            raise UsageError(f"`orch schedule {verb}` takes one name", way_out="orch schedule list")
        one = schedule.find_scheduled(words[1])
        return _remove(one, output) if verb == "remove" else _run_now(one, output)
    if len(words) != 1:
        raise UsageError("orch schedule takes one playbook", way_out="orch schedule playbooks/nightly.yaml --at 02:00")
    if arguments.at is None:
        raise UsageError("no time of day was given", way_out=f"orch schedule {verb} --at 02:00")
    return _schedule(arguments, verb, output)


def _schedule(arguments: argparse.Namespace, file: str, output: Output) -> int:
    loaded = load_playbook(Path(file), load_inventory(arguments.inventory), arguments.variables)
    job = _job(arguments, loaded)
    units = schedule.units_of(job, system=arguments.system)
    offline = arguments.offline
    managed = offline or schedule.has_systemd(system=arguments.system)
    for line in _shown(job, units, managed=managed):
        output.result(line)
    if not arguments.unchecked:
        _check(job, loaded, arguments, output)
    if not managed:
        if not arguments.system and schedule.has_systemd(system=True):
            output.note("No systemd of this user's is here; with --system, the machine's would play it.")
        output.note(
            "There is no systemd here that would run a timer: for `crontab -e`, in the machine's own time zone:"
        )
        if job.when.zone is not None and job.when.zone != (here := schedule.local_zone()):
            output.note(
                f"That zone is {here or 'unknown'}, not {job.when.zone}: change the hour in the line accordingly."
            )
        output.result(cron_line(job))
        return 0
    if arguments.dry_run or not _agreed(arguments):
        return 0
    written = schedule.write_units(job, units, system=arguments.system, offline=offline)
    output.result("\n".join(f"written: {path}" for path in written))
    output.next_step("orch schedule list")
    return 0


def _job(arguments: argparse.Namespace, loaded: Loaded) -> Job:
    path = loaded.playbook.path
    zone = arguments.tz or schedule.local_zone()
    schedule.zone_of(zone)
    inventory = ["-i", str(loaded.inventory.path)]
    variables = [word for one in arguments.variables for word in ("--var", one)]
    return schedule.make_job(
        name=arguments.name or path.stem,
        playbook=path,
        words=["play", *inventory, str(path), *variables, *(["--tell", arguments.tell] if arguments.tell else [])],
        when=parse_at(arguments.at, zone),
        environment_file=Path(arguments.env_file) if arguments.env_file else None,
        ssh_auth_sock=arguments.ssh_auth_sock,
        system=arguments.system,
        catch_up=arguments.if_missed == "run",
    )


def _shown(job: Job, units: schedule.Units, *, managed: bool) -> list[str]:
    zone = schedule.zone_of(job.when.zone)
    now = datetime.now(UTC)
    lines = []
    if managed:
        for kind, text in (("service", units.service), ("timer", units.timer)):
            lines += [f"--- {units.folder}/{job.unit}.{kind}", text.rstrip()]
        lines.append("---")
    if zone is None:
        return [*lines, f"plays {job.playbook} at {job.when.text}, in whatever zone the machine is then"]
    lines.append(f"plays {job.playbook} at {job.when.text}; next:")
    for at in next_times(job.when, zone, now, SHOWN):
        lines.append(f"  {at.strftime(UTC_FORMAT)} = {at.astimezone(zone).strftime(LOCAL_FORMAT)}")
    for gap in left_out(job.when, zone, now.date())[:1]:
        lines.append(f"  the clocks go forward over it next on {gap:%Y-%m-%d}: that day at {gap:%H:%M}")
    return lines


def _check(job: Job, loaded: Loaded, arguments: argparse.Namespace, output: Output) -> None:
    """Raises PreflightError naming what is missing."""
    output.note("trying it in the environment that the timer will have:")
    checks = asyncio.run(schedule.check_environment(job, _commands(job, loaded), system=arguments.system))
    environment = schedule.unit_environment(job, system=arguments.system)
    told = [
        (f"the webhook of `{step.name}`", step.options.webhook)
        for step in loaded.playbook.all_steps
        if isinstance(step.options, NotifyOptions) and step.options.webhook
    ]
    for what, reference in [*told, *([("the webhook of --tell", arguments.tell)] if arguments.tell else [])]:
        secret, warning = read_reference(reference, environment)
        checks.append(schedule.Check(what, "" if secret else warning))
    for check in checks:
        output.note(f"  {'works' if not check.problem else 'DOES NOT WORK'}: {check.what}")
    wrong = [check for check in checks if check.problem]
    if wrong:
        raise PreflightError(
            f"{len(wrong)} of {len(checks)} things would fail when the timer plays it; nothing was written",
            evidence="\n".join(f"{check.what}:\n{check.problem}" for check in wrong),
            way_out="mend it, or give what is missing in --env-file FILE; --unchecked writes the timer all the same",
        )


def _commands(job: Job, loaded: Loaded) -> list[tuple[str, list[str]]]:
    inventory = ["-i", str(loaded.inventory.path)]
    commands = [("the playbook and the inventory can be read", [*job.argv[3:], "--dry-run"])]
    targets = dict.fromkeys(name for names in loaded.targets.values() for name in names)
    for name in targets:
        words = ["exec", *inventory, "-t", name, "--timeout", "30", "--", "true"]
        commands.append((f"{name} can be reached", words))
    for step in loaded.playbook.all_steps:
        if isinstance(step.options, PublishOptions) and "${" not in step.options.to:
            words = ["publish", *inventory, "--to", step.options.to, "--list"]
            commands.append((f"{step.options.to} can be read", words))
    return commands


def _agreed(arguments: argparse.Namespace) -> bool:
    """Raises UsageError where nobody can be asked."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "this has to be answered with yes, and there is no terminal to ask on; nothing was written",
            way_out="the same command with --yes does it without asking, with --dry-run only shows it",
        )
    print("write and start this? [yes/no] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("yes", "y")


def _list(output: Output) -> int:
    there = schedule.list_scheduled()
    if not there:
        output.result("nothing is scheduled")
        output.next_step("orch schedule playbooks/nightly.yaml --at 02:00")
        return 0
    rows = [("name", "at", "next", "last", "playbook", "")]
    for one in there:
        where = ("system" if one.system else "user") + ("" if one.enabled else ", not enabled")
        rows.append((one.name, one.at, _next(one), schedule.last_result(one) or DASH, one.playbook, where))
    output.result(render_rows(rows))
    return 0


def _next(one: schedule.Scheduled) -> str:
    clock, _, zone_name = one.at.rpartition(" ")
    zone = schedule.zone_of(zone_name) if "/" in zone_name or zone_name == "UTC" else None
    if zone is None:
        return DASH
    [at] = next_times(parse_at(clock, zone_name), zone, datetime.now(UTC), 1)
    return at.strftime(UTC_FORMAT)


def _remove(one: schedule.Scheduled, output: Output) -> int:
    gone = schedule.remove_scheduled(one)
    output.result("\n".join(f"removed: {path}" for path in gone))
    output.note("A play that is under way goes on.")
    return 0


def _run_now(one: schedule.Scheduled, output: Output) -> int:
    if schedule.start_now(one):
        user = "" if one.system else " --user"
        output.result(f"{one.file.name} was started")
        output.next_step(f"journalctl{user} -fu {one.file.name}")
        return 0
    output.note("There is no systemd here that could start it: its command runs here, in its environment.")
    return schedule.run_here(schedule.job_of(one), system=one.system)

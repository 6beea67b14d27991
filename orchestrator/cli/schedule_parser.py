"""Options of `orch schedule`."""

from __future__ import annotations

import argparse


def add_schedule(schedule: argparse.ArgumentParser) -> None:
    schedule.add_argument(
        "words",
        nargs="+",
        metavar="PLAYBOOK | list | remove NAME | run-now NAME",
        help="the playbook to schedule; or what is scheduled, to see, remove or run",
    )
    schedule.add_argument("--at", metavar="TIME", help='02:00, or "Mon..Fri 02:00"')
    schedule.add_argument("--tz", metavar="ZONE", help="Europe/Berlin (default: the machine's)")
    schedule.add_argument("--name", metavar="NAME", help="of the units (default: the playbook's)")
    schedule.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE", dest="variables", help="as with play; one each"
    )
    schedule.add_argument("--system", action="store_true", help="a unit of the system, not of the user")
    schedule.add_argument(
        "--env-file", metavar="FILE", help="secrets: lines NAME=value, mode 0600; named, never copied"
    )
    schedule.add_argument(
        "--tell", metavar="env:NAME|file:PATH", help="as with play: a webhook that is told when nothing can be begun"
    )
    schedule.add_argument("--ssh-auth-sock", metavar="PATH", help="an ssh-agent that is always there (default: none)")
    schedule.add_argument(
        "--if-missed",
        choices=("run", "skip"),
        default="run",
        help="what becomes of a time at which the machine was off (default: run, at its next start)",
    )
    schedule.add_argument("--dry-run", action="store_true", help="show and try it; write nothing")
    schedule.add_argument("--offline", action="store_true", help="write the units without asking systemd to start them")
    schedule.add_argument("--unchecked", action="store_true", help="do not try it in the timer's environment first")
    schedule.add_argument("--yes", action="store_true", help="do not ask")

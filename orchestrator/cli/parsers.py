"""Every command's options in one place: parsing needs no command's imports."""

from __future__ import annotations

import argparse

from orchestrator.cli.lab import add_parser as add_lab_parser


# "argparse._SubParsersAction[...]" is how argparse itself names what add_subparsers returns.
def add_all(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    def command(name: str, summary: str) -> argparse.ArgumentParser:
        return subparsers.add_parser(name, help=summary, description=summary, parents=[common])

    hosts = command("hosts", "show hosts, targets and payloads as the inventory is read")
    selectors(hosts)
    hosts.add_argument("--json", action="store_true")

    trust = command("trust", "show a host's key and, once confirmed, remember it")
    trust.add_argument("host", help="host or target name from the inventory")
    trust.add_argument("--yes", action="store_true", help="remember the key without asking; compare it afterwards")

    deploy = command("deploy", "ship the payload as a new release and switch to it")
    selectors(deploy)
    deploy.add_argument("--dry-run", action="store_true", help="say what would be sent; change nothing")
    deploy.add_argument("--ref", metavar="REV", help="ship the payload as it is in this git commit")

    rollback = command("rollback", "switch back to the release before, or to a named one")
    selectors(rollback)
    rollback.add_argument("--to", metavar="RELEASE", help="release hash, or its beginning")

    launch = command("launch", "start a training run that outlives this connection")
    selectors(launch)
    launch.add_argument(
        "--wait",
        nargs="?",
        const="first-step",
        metavar="first-step|step:N|end",
        help="come back when this is reached (alone: first-step)",
    )
    launch.add_argument("--timeout", type=float, metavar="SECONDS", help="with --wait: give up waiting after this")
    fresh = launch.add_mutually_exclusive_group()
    fresh.add_argument(
        "--resume",
        nargs="?",
        const="last",
        metavar="RUN[:STEP]",
        help="go on from a checkpoint (alone: the newest complete one of the last run)",
    )
    fresh.add_argument("--from-scratch", action="store_true", help="take no checkpoint, whatever the inventory says")
    launch.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="payload setting, repeatable"
    )
    launch.add_argument("--attach", action="store_true", help="attach to the session once started")

    status = command("status", "what runs, how it goes, how the last run ended")
    selectors(status)
    status.add_argument("--json", action="store_true")

    logs = command("logs", "show a run's log")
    logs.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the live or last one)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as it grows, until the run ends")
    logs.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    target(logs)

    attach = command("attach", "attach to the run's tmux session (detach: Ctrl-b d)")
    target(attach)

    stop = command("stop", "ask the run for a checkpoint and stop it")
    selectors(stop)
    stop.add_argument("--timeout", type=float, metavar="SECONDS", help="how long it may take to stop")
    stop.add_argument("--kill", action="store_true", help="end it by force when the time is over")

    pull = command("pull", "fetch a run's records, log and checkpoints")
    pull.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the last one)")
    pull.add_argument("--to", metavar="FOLDER", help="where to put it (default: runs/<run id>)")
    target(pull)

    execute = command("exec", "run one command on the target")
    target(execute)
    execute.add_argument("--timeout", type=float, metavar="SECONDS")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- argv", help="the command, after --")

    shell = command("shell", "open a shell on the target")
    target(shell)

    add_lab_parser(subparsers)


def selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="target, group, container id, or `all`")


def target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--target", metavar="TARGET", help="target name or container id")

"""Every command's options in one place: parsing needs no command's imports."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from orchestrator import __version__
from orchestrator.cli.cache_parser import add_cache
from orchestrator.cli.env_parser import add_env
from orchestrator.cli.parser_words import Command, Parser, as_json, count, seconds, seeding, selectors, target
from orchestrator.cli.publish_parser import add_publish
from orchestrator.cli.schedule_parser import add_schedule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_CODES = """\
exit codes: 0 done, 1 the answer is no (diff: different, doctor: a finding,
logs --traceback and read: nothing found),
2 usage, 3 inventory, 4 host unreachable, 5 host key, 6 login refused,
7 container, 8 outcome unknown (link lost), 9 busy (live run, lease),
10 preflight, 11 the run failed, 12 deadline passed, 13 transfer,
14 done and not as wanted, 70 bug, 130 interrupted.
`orch exec` hands on the command's own code."""


# operations/readers.py has the readers; named here, too, because help imports nothing.
READ_KINDS = ("smi-csv", "log", "import", "pip", "smi-apps", "smi-xml", "nvml", "ssh", "pct", "disk", "inventory")


# ledger/run_query.py has them; named here, too, for the same reason.
OUTCOMES = ("running", "well", "stopped", "failed", "unknown")
SORTS = ("started", "rate", "took", "step", "acceptance")


def build_parser() -> argparse.ArgumentParser:
    common = Parser(add_help=False)
    common.add_argument("-i", "--inventory", metavar="FILE", default=argparse.SUPPRESS, help="inventory file")
    common.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show every remote command line"
    )
    parser = Parser(
        prog="orch",
        description="Runs training on GPU containers that can be reached only through their host.",
        epilog=EXIT_CODES,
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"orch {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Command)
    _add_commands(subparsers, common)
    return parser


# The annotation is argparse's own name for this; it is never evaluated.
def _add_commands(subparsers: argparse._SubParsersAction[Command], common: Parser) -> None:
    def command(name: str, summary: str, add: Callable[[Parser], None]) -> None:
        parents: list[Any] = [common]  # typeshed wants them to be what they become parents of
        subparsers.add_parser(name, help=summary, description=summary, parents=parents).add_when_named(add)

    command("hosts", "show hosts, targets and payloads as the inventory is read", _add_hosts)
    command("trust", "show a host's key and, once confirmed, remember it", _add_trust)
    command("deploy", "ship the payload as a new release and switch to it", _add_deploy)
    command("rollback", "switch back to the release before, or to a named one", _add_rollback)
    command("launch", "start a training run that outlives this connection", _add_launch)
    command(
        "warmup", "compile what a run will ask for, and prove it in a fresh process; exit code 14: not so", _add_warmup
    )
    command("status", "what runs, how it goes, how the last run ended", _add_status)
    command("logs", "show a run's log", _add_logs)
    command("runs", "which runs there were, a line each; or one run's whole record", _add_runs)
    command("adopt", "make a record for a training in a tmux session that orch did not start", _add_adopt)
    command("read", "read one captured output as status would: its values, and where each stands", _add_read)
    command("diff", "what differs between two runs, the likeliest cause first; exit code 1: something does", _add_diff)
    command("doctor", "why is it slow or dead: findings, the cause first; exit code 1: one is above info", _add_doctor)
    command("fingerprint", "everything that a run would start from now; nothing is started", _add_fingerprint)
    command("attach", "attach to the run's tmux session (detach: Ctrl-b d)", target)
    command("stop", "ask the run for a checkpoint and stop it", _add_stop)
    command("reset", "free the GPUs, set the compile cache aside; shows its plan and asks first", _add_reset)
    command("pull", "fetch a run's records, log and checkpoints", _add_pull)
    command("publish", "make a run's drafter the current one of a folder, a target or an object store", add_publish)
    command("exec", "run one command on the target", _add_exec)
    command("shell", "open a shell on the target", target)
    command(
        "cache",
        "the compile cache: what is in it, and the snapshots that are kept of it",
        lambda cache: add_cache(cache, common),
    )
    command("play", "play a playbook: a list of steps, recorded; goes on where it was cut off", _add_play)
    command("schedule", "play a playbook at a time of day: a systemd timer, or a line for cron", add_schedule)
    command("env", "the target's Python environments: make, check, choose", lambda env: add_env(env, common))
    command("lab", "a host and a container to try things on, on this machine", _add_lab)


def _add_hosts(hosts: Parser) -> None:
    selectors(hosts)
    as_json(hosts)


def _add_trust(trust: Parser) -> None:
    trust.add_argument("host", help="host or target name from the inventory")
    trust.add_argument("--yes", action="store_true", help="remember the key without asking; compare it afterwards")


def _add_deploy(deploy: Parser) -> None:
    selectors(deploy)
    deploy.add_argument("--dry-run", action="store_true", help="say what would be sent; change nothing")
    deploy.add_argument("--ref", metavar="REV", help="ship the payload as it is in this git commit")


def _add_rollback(rollback: Parser) -> None:
    selectors(rollback)
    rollback.add_argument("--to", metavar="RELEASE", help="release hash, or its beginning")


def _add_launch(launch: Parser) -> None:
    selectors(launch)
    launch.add_argument(
        "--wait",
        nargs="?",
        const="first-step",
        metavar="first-step|step:N|end",
        help="come back when this is reached (alone: first-step)",
    )
    launch.add_argument("--timeout", type=seconds, metavar="SECONDS", help="with --wait: give up waiting after this")
    fresh = launch.add_mutually_exclusive_group()
    fresh.add_argument(
        "--resume",
        nargs="?",
        const="last",
        metavar="RUN[:STEP]",
        help="go on from a checkpoint (alone: the newest complete one of the last run)",
    )
    fresh.add_argument("--from-scratch", action="store_true", help="take no checkpoint (the default)")
    launch.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="payload setting; one each"
    )
    seeding(launch)
    launch.add_argument("--warm", action="store_true", help="first `orch warmup`; only when that is done, launch")
    launch.add_argument("--attach", action="store_true", help="attach to the session once started")


def _add_warmup(warmup: Parser) -> None:
    selectors(warmup)
    warmup.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="as for the launch to come"
    )
    warmup.add_argument("--timeout", type=seconds, metavar="SECONDS", help="give up waiting for a pass after this")
    seeding(warmup)
    as_json(warmup)


def _add_status(status: Parser) -> None:
    selectors(status)
    as_json(status)
    status.add_argument("--watch", action="store_true", help="go on until Ctrl-C, also when the link comes and goes")


def _add_logs(logs: Parser) -> None:
    logs.add_argument("run", nargs="?", metavar="RUN", help="run id or its beginning (default: the live or last one)")
    what = logs.add_mutually_exclusive_group()
    what.add_argument("-f", "--follow", action="store_true", help="go on as it grows, until the run ends")
    what.add_argument(
        "--traceback", action="store_true", help="only the last failure, whole, from all of the log; exit code 1: none"
    )
    logs.add_argument("-n", "--lines", type=count, metavar="N", help="only the last N lines")
    target(logs)


def _add_runs(runs: Parser) -> None:
    runs.add_argument(
        "words",
        nargs="*",
        metavar="TARGET | show RUN | mark RUN good|bad | note RUN TEXT",
        help="targets; or `show` and a run id, its beginning, or `last`; or `mark`, a run, and what it was; or `note`",
    )
    runs.add_argument("--note", metavar="TEXT", help="with mark: why")
    target(runs)
    runs.add_argument("-n", "--last", type=count, metavar="N", help="at most N (default: 20)")
    runs.add_argument("--payload", metavar="NAME", help="only runs of this payload")
    runs.add_argument("--outcome", action="append", default=[], choices=OUTCOMES, help="only these, repeatable")
    runs.add_argument("--since", metavar="AGE|DATE", help="only runs started since: 7d, 36h, 2026-11-20")
    runs.add_argument("--good", action="store_true", help="only those that a run may be compared with")
    runs.add_argument("--sort", choices=SORTS, default="started", help="the newest, or the largest, first")
    runs.add_argument("--sync", action="store_true", help="read every run anew and mend this machine's index of them")
    runs.add_argument("--gone", action="store_true", help="those that only the index knows: no longer on the target")
    as_json(runs)


def _add_adopt(adopt: Parser) -> None:
    adopt.add_argument("session", nargs="?", metavar="SESSION", help="its name (default: the payload's `session:`)")
    adopt.add_argument("--pid", type=int, help="of the training, where the session has several")
    adopt.add_argument("--socket", metavar="PATH", help="of the tmux server on the target (default: tmux's own)")
    target(adopt)
    as_json(adopt)


def _add_read(read: Parser) -> None:
    read.add_argument("kind", metavar="KIND", help=f"whose output it is: {', '.join(READ_KINDS)}")
    read.add_argument("file", nargs="?", metavar="FILE", default="-", help="the file; without it, or `-`: stdin")
    read.add_argument("--fields", metavar="A,B,...", help="the columns that were asked for, where no header names them")
    as_json(read)


def _add_diff(diff: Parser) -> None:
    diff.add_argument(
        "sides",
        nargs="*",
        metavar="A B",
        help="run id or its beginning, last-good, latest, or now (the target as it is); default: last-good latest",
    )
    target(diff)
    as_json(diff)


def _add_doctor(doctor: Parser) -> None:
    doctor.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="run id, its beginning, or `last` (default: the live or last one)",
    )
    doctor.add_argument("--setup", action="store_true", help="is a new target fit: a row for each thing a launch needs")
    target(doctor)
    as_json(doctor)


def _add_fingerprint(fingerprint: Parser) -> None:
    selectors(fingerprint)
    fingerprint.add_argument("--json", action="store_true", help="canonical: the same for the same, byte for byte")


def _add_stop(stop: Parser) -> None:
    selectors(stop)
    stop.add_argument("--timeout", type=seconds, metavar="SECONDS", help="how long it may take to stop")
    stop.add_argument("--kill", action="store_true", help="end it by force when the time is over")


def _add_reset(reset: Parser) -> None:
    selectors(reset)
    reset.add_argument(
        "--kill-gpus",
        action="store_true",
        help="end what of this target is on a GPU or left of its runs, a live run too",
    )
    reset.add_argument("--clear-cache", action="store_true", help="set the compile cache aside as a snapshot")
    reset.add_argument(
        "--seed", metavar="NAME|last-good", help="with --clear-cache: make the cache anew from this snapshot"
    )
    reset.add_argument("--force", action="store_true", help="with --seed: also where no look-up can hit")
    reset.add_argument("--dry-run", action="store_true", help="show the plan; change nothing")
    reset.add_argument("--yes", action="store_true", help="do not ask")
    as_json(reset)


def _add_pull(pull: Parser) -> None:
    pull.add_argument("run", nargs="?", metavar="RUN", help="run id or its beginning (default: the last one)")
    pull.add_argument("--to", metavar="FOLDER", help="where to put it (default: runs/<run id>)")
    target(pull)


def _add_exec(execute: Parser) -> None:
    target(execute)
    execute.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end it after this")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- argv", help="the command, after --")


def _add_play(play: Parser) -> None:
    play.add_argument("file", nargs="?", metavar="FILE", help="the playbook, a YAML file: docs/playbooks.md")
    play.add_argument("--dry-run", action="store_true", help="say what each step would do; ask nobody, change nothing")
    begins = play.add_mutually_exclusive_group()
    begins.add_argument("--from", dest="start", metavar="STEP", help="begin at this step, with what is known already")
    begins.add_argument("--new", action="store_true", help="begin anew although the last play was cut off")
    play.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="variables",
        help="in place of `vars:`; one each",
    )
    play.add_argument(
        "--tell", metavar="env:NAME|file:PATH", help="where a webhook's address stands: told when nothing can be begun"
    )
    play.add_argument("--schema", action="store_true", help="print the JSON Schema of playbooks, for editors")
    as_json(play)


def _add_lab(lab: argparse.ArgumentParser) -> None:
    verbs = lab.add_subparsers(dest="lab_verb", required=True, metavar="VERB")

    def verb(name: str, summary: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=summary, description=summary)

    up = verb("up", "make a lab")
    _add_kind(up)
    up.add_argument("--venv", metavar="PATH", help="what the container's /root/venv points at")
    down = verb("down", "remove a lab, also a broken one")
    _add_kind(down)
    _add_which(down)
    down.add_argument("--stale", action="store_true", help="remove only what dead labs left behind")
    status = verb("status", "which labs there are and how they do")
    _add_which(status)
    shell = verb("shell", "a shell, or one command, in which `orch` works on a lab's host and container")
    _add_kind(shell)
    _add_which(shell)
    shell.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="without it, a shell")


def _add_kind(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--real", dest="kind", action="store_const", const="real", help="LXC and sshd; needs root")
    kinds.add_argument("--embedded", dest="kind", action="store_const", const="embedded", help="needs no root")


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lab", metavar="ID", help="which lab; default: $ORCH_LAB, or the only one")

"""`orch lab`: a host and a container to try everything on, without Proxmox and without a GPU."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.lab.records import LabKind, LabRecord

# "argparse._SubParsersAction[...]" is how argparse itself names what add_subparsers returns.


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("lab", help="a host and a container to try things on, on this machine")
    verbs = parser.add_subparsers(dest="lab_verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="make a lab")
    _add_kind(up)
    up.add_argument("--venv", type=Path, metavar="PATH", help="what the container's /root/venv points at")
    down = verbs.add_parser("down", help="remove a lab, also a broken one")
    _add_kind(down)
    _add_lab(down)
    down.add_argument("--stale", action="store_true", help="remove only what dead labs left behind")
    status = verbs.add_parser("status", help="which labs there are and how they do")
    _add_lab(status)
    shell = verbs.add_parser("shell", help="a shell, or one command, on the controller's side of a lab")
    _add_kind(shell)
    _add_lab(shell)
    shell.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _add_kind(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--real", dest="kind", action="store_const", const="real", help="LXC and sshd; needs root")
    kinds.add_argument("--embedded", dest="kind", action="store_const", const="embedded", help="needs no root")


def _add_lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lab", metavar="ID", help="which lab; default: $ORCH_LAB, or the only one")


def run(args: argparse.Namespace) -> int:
    verbs = {"up": _up, "down": _down, "status": _status, "shell": _shell}
    return verbs[args.lab_verb](args)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _up(args: argparse.Namespace) -> int:
    from orchestrator.lab.choice import bring_up

    began = time.monotonic()
    lab = bring_up(args.kind, venv=args.venv)
    _say(f"lab {lab.record.id} ({lab.record.kind}) is up after {time.monotonic() - began:.1f} s")
    _say(f"  container's processes: {lab.record.isolation}")
    _say(f"  orch lab shell --lab {lab.record.id} -- orch ...")
    return 0


def _down(args: argparse.Namespace) -> int:
    from orchestrator.lab.choice import open_lab
    from orchestrator.lab.records import choose_lab, find_labs

    if args.stale:
        doomed = [record for record in find_labs() if record.stale()]
    else:
        doomed = [choose_lab(args.lab, kind=args.kind)]
    for record in doomed:
        open_lab(record).down()
        _say(f"lab {record.id} ({record.kind}) is gone")
    if not doomed:
        _say("no dead lab has left anything behind")
    return 0


def _status(args: argparse.Namespace) -> int:
    from orchestrator.lab.records import choose_lab, find_labs

    records = [choose_lab(args.lab)] if args.lab else list(find_labs())
    for record in records:
        _say(describe(record))
    if not records:
        _say("no lab is up")
    return 0


def describe(record: LabRecord) -> str:
    from orchestrator.lab.choice import open_lab

    lab = open_lab(record)
    if record.stale():
        state, way_out = "dead", f"; remove it: orch lab down --lab {record.id}"
    elif not record.processes:
        state, way_out = "being made", ""
    else:
        state, way_out = "up", ""
    lines = [f"lab {record.id} ({record.kind}): {state}{way_out}", f"  folder: {record.folder}"]
    if state == "up":
        running = "running" if lab.container_running() else "stopped"
        lines += [f"  container 200: {running}", f"  kept apart by: {record.isolation}"]
    lines.append(f"  pct starts: {lab.pct_starts()}")
    return "\n".join(lines)


def _shell(args: argparse.Namespace) -> int:
    from orchestrator.lab.choice import open_lab
    from orchestrator.lab.records import choose_lab

    kind: LabKind | None = args.kind
    lab = open_lab(choose_lab(args.lab, kind=kind))
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        sys.stderr.write(f"On the controller's side of lab {lab.record.id}; `exit` leaves it.\n")
        argv = [os.environ.get("SHELL", "/bin/sh")]
    command = lab.command(argv)
    sys.stdout.flush()
    os.execvpe(command[0], command, lab.environment())

"""`orch lab`: a host and a container to try everything on, without Proxmox and without a GPU."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.output import Output

if TYPE_CHECKING:
    from orchestrator.lab.records import LabKind, LabRecord


def run(args: argparse.Namespace, output: Output) -> int:
    verbs = {"up": _up, "down": _down, "status": _status, "shell": _shell}
    return verbs[args.lab_verb](args, output)


def _up(args: argparse.Namespace, output: Output) -> int:
    from orchestrator.lab.choice import bring_up

    began = time.monotonic()
    lab = bring_up(args.kind, venv=Path(args.venv) if args.venv else None)
    output.result(f"lab {lab.record.id} ({lab.record.kind}) is up after {time.monotonic() - began:.1f} s")
    output.result(f"  kept apart by: {lab.record.isolation}")
    output.next_step(f"orch lab shell --lab {lab.record.id} -- orch deploy   (its end: orch lab down)")
    return 0


def _down(args: argparse.Namespace, output: Output) -> int:
    from orchestrator.lab.choice import open_lab
    from orchestrator.lab.records import choose_lab, find_labs

    if args.stale:
        doomed = [record for record in find_labs() if record.stale()]
    else:
        doomed = [choose_lab(args.lab, kind=args.kind)]
    for record in doomed:
        open_lab(record).down()
        output.result(f"lab {record.id} ({record.kind}) is gone")
    if not doomed:
        output.result("no dead lab has left anything behind")
    return 0


def _status(args: argparse.Namespace, output: Output) -> int:
    from orchestrator.lab.records import choose_lab, find_labs

    records = [choose_lab(args.lab)] if args.lab else list(find_labs())
    for record in records:
        output.result(describe(record))
    if not records:
        output.result("no lab is up")
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


def _shell(args: argparse.Namespace, output: Output) -> int:
    from orchestrator.lab.choice import open_lab
    from orchestrator.lab.records import choose_lab

    kind: LabKind | None = args.kind
    lab = open_lab(choose_lab(args.lab, kind=kind))
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        output.note(f"In lab {lab.record.id}: `orch` here works on its host and container. `exit` leaves it.")
        argv = [os.environ.get("SHELL", "/bin/sh")]
    command = lab.command(argv)
    sys.stdout.flush()
    os.execvpe(command[0], command, lab.environment())

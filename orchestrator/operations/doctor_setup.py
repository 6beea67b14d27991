"""Is a new target fit to be trained on? Asks for each thing that a launch needs; nothing is changed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.diagnosis.setup import SetupFacts, not_reached, rows
from orchestrator.errors import (
    AuthError,
    ContainerError,
    HostKeyError,
    OrchError,
    OutcomeUnknownError,
    UnreachableError,
)
from orchestrator.inventory.model import Payload, Target
from orchestrator.operations.doctor import link_of, offset_s
from orchestrator.operations.environment_check import has_torch
from orchestrator.operations.session import Sessions, all_sessions
from orchestrator.probes.gpu import QUESTION
from orchestrator.probes.values import as_int, as_mapping, as_str
from orchestrator.reports.setup import SetupReport
from orchestrator.reports.status_facts import gpu_answer
from orchestrator.transport.tracing import Trace

GPU_DEADLINE_S = 10.0
ASK_S = 10.0
WRITABLE = 'path=$1; while [ ! -e "$path" ]; do path=$(dirname "$path"); done; test -w "$path"'
"""Of the nearest folder above that exists."""
PYTHON = re.compile(r"(.*/)?python[0-9.]*")


async def setup(target: Target, *, trace: Trace | None = None) -> SetupReport:
    """A target that cannot be reached is part of the answer."""
    try:
        async with all_sessions(target, trace) as sessions:
            found = rows(target, await _facts(sessions, target))
    except (UnreachableError, HostKeyError, AuthError, ContainerError, OutcomeUnknownError) as error:
        found = _not_reached(error, target)
    return SetupReport(target.name, target.label, found)


def _not_reached(error: OrchError, target: Target) -> Any:
    link = link_of(error)
    evidence = f": {link.evidence.splitlines()[-1].strip()}" if link.evidence.strip() else ""
    return not_reached(link.part, link.what + evidence, link.way_out, target)


async def _facts(sessions: Sessions, target: Target) -> SetupFacts:
    session, payload = sessions.target, target.payload
    before_s = time.time()
    facts = (await session.request("run_facts", base=target.base)).header
    after_s = time.time()
    ready, asked, batch, listed = await asyncio.gather(
        session.request(
            "preflight",
            base=target.base,
            python=payload.python if payload is not None else None,
            tmux_wanted=True,
            nvidia_smi=None,
            paths=[path for path in (payload.data, payload.model) if path] if payload is not None else [],
        ),
        session.request("gpus", smi=list(QUESTION), deadline_s=GPU_DEADLINE_S),
        session.request("run_batch", commands=_commands(target)),
        session.request("env_list", base=target.base),
    )
    release = as_str(facts.get("release"))
    gpus = gpu_answer(asked.header)
    python, tmux, disk = (as_mapping(ready.header.get(name)) for name in ("python", "tmux", "disk"))
    lacks, wanted_by, torch = await _code(session, target, release, python)
    results = batch.header["results"]
    paths = as_mapping(ready.header.get("paths"))
    return SetupFacts(
        agent_python=session.hello.python_version,
        is_root=session.hello.uid == 0,
        host_ok=sessions.host is not None,
        why_no_host=sessions.why_no_host,
        python_path=as_str(python.get("path")),
        python_version=as_str(python.get("version")),
        python_error=as_str(python.get("error")) if payload is not None and payload.python is not None else None,
        environment=_environment(listed.header, payload),
        tmux_version=as_str(tmux.get("version")),
        tmux_error=as_str(tmux.get("error")),
        disk_free_bytes=as_int(disk.get("free_bytes")),
        inodes_free=as_int(disk.get("free_inodes")),
        root_writable=results[0]["exit_code"] == 0,
        shm_bytes=as_int(ready.header.get("shm_free_bytes")),
        gpus=gpus.gpus,
        gpu_error=gpus.error,
        gpu_warnings=gpus.warnings,
        command_found=results[1]["exit_code"] == 0 if len(results) > 1 else None,
        command_lacks=lacks,
        paths=tuple((path, there is True) for path, there in paths.items()),
        clock_offset_s=offset_s(facts.get("now"), before_s, after_s),
        release=release,
        torch_wanted_by=wanted_by,
        has_torch=torch,
    )


async def _code(
    session: AgentSession, target: Target, release: str | None, python: Mapping[str, Any]
) -> tuple[str | None, str | None, bool | None]:
    """(the script that the command names and the release has not, a file of the release that its command reaches and
    that imports torch, whether the environment has torch). None: not told, or not there yet."""
    if release is None or target.payload is None:
        return None, None, None
    argv = list(target.payload.command)
    asked = await session.request("who_imports", folder=release, argv=argv, module="torch", timeout_s=ASK_S)
    lacks, wanted_by = (as_str(asked.header.get(name)) for name in ("lacks", "by"))
    if wanted_by is None:
        return lacks, None, None
    return lacks, wanted_by, await has_torch(session, target, _interpreter(target.payload, python))


def _interpreter(payload: Payload, python: Mapping[str, Any]) -> str | None:
    """Of a payload that names none: what its command is. python: the one on PATH, as preflight tells."""
    word = payload.command[0]
    return as_str(python.get("path")) if word == "python" else word if PYTHON.fullmatch(word) else None


def _commands(target: Target) -> list[dict[str, Any]]:
    """The second one only where the payload's command is none of its own Python's."""
    argvs = [["sh", "-c", WRITABLE, "sh", target.root]]
    if target.payload is not None and target.payload.command[0] != "python":
        word = target.payload.command[0]
        inside = word.startswith((".", "/")) is False and "/" in word
        argvs += [] if word.startswith(".") or inside else [["sh", "-c", 'command -v "$1"', "sh", word]]
    return [{"argv": argv, "timeout_s": ASK_S} for argv in argvs]


def _environment(listed: Mapping[str, Any], payload: Payload | None) -> str | None:
    if payload is None or payload.environment is None:
        return None
    name = as_str(as_mapping(as_mapping(listed.get("current")).get(payload.environment)).get("id"))
    return None if name is None else name[:12]

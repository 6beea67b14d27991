"""A run's log, from the file by offset. Without python over there it falls back to plain sh, and says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import NoPythonError, lost_error
from orchestrator.errors import OutcomeUnknownError
from orchestrator.inventory.model import Target
from orchestrator.operations.execute import Sink, execute
from orchestrator.operations.session import agent_session
from orchestrator.operations.which_run import LAST, facts_of_run
from orchestrator.probes.text import plain_text
from orchestrator.transport.tracing import Trace
from remote_payload import contract

CHUNK_BYTES = 1024 * 1024
FOREVER_S = 10 * 365 * 86400.0

SH_SCRIPT = """
cd "$1/runs" 2>/dev/null || { echo "no runs in $1" >&2; exit 1; }
run="$2"
[ -n "$run" ] || run=$(ls -1 | sort | tail -n 1)
[ -f "$run/$3" ] || { echo "no log of run $run" >&2; exit 1; }
if [ "$5" = follow ]; then exec tail -n "$4" -f "$run/$3"; fi
exec tail -n "$4" "$run/$3"
"""


async def logs(
    target: Target,
    run_id: str | None,
    *,
    follow: bool,
    lines: int | None,
    on_bytes: Sink,
    on_note: Callable[[str], None],
    trace: Trace | None = None,
) -> int:
    """Raises UsageError when there is no such run. The exit code is 0, or the fallback's."""
    try:
        async with agent_session(target, trace) as session:
            await _send_log(session, target, run_id, follow, lines, on_bytes)
            return 0
    except NoPythonError as error:
        on_note(f"{error.what}; reading the log with sh")
        which = ["+1"] if lines is None else [str(lines)]
        argv = [
            "sh",
            "-c",
            SH_SCRIPT,
            "sh",
            target.base,
            "" if run_id in LAST else run_id or "",
            contract.RUN_LOG,
            *which,
        ]
        argv.append("follow" if follow else "")

        def on_stderr(chunk: bytes) -> None:
            on_note(plain_text(chunk.decode("utf-8", "replace")).rstrip())

        try:
            return await execute(target, argv, stdin=None, on_stdout=on_bytes, on_stderr=on_stderr, trace=trace)
        except OutcomeUnknownError as lost:
            raise lost_error(
                target.label, "the connection was lost", only_looked=True, evidence=lost.evidence
            ) from lost


async def _send_log(
    session: AgentSession, target: Target, run_id: str | None, follow: bool, lines: int | None, on_bytes: Sink
) -> None:
    run = (await facts_of_run(session, target, run_id))["run"]
    path = f"{run['folder']}/{contract.RUN_LOG}"
    size = run["log"]["size"] if run["log"] else 0
    offset = 0 if lines is None else await _offset_of_last_lines(session, path, size, lines)
    if not follow:
        while offset < size:
            reply = await session.request("read_file", path=path, offset=offset, limit=CHUNK_BYTES)
            if not reply.body:
                break
            on_bytes(reply.body)
            offset += len(reply.body)
        return
    await _follow(session, target, run["id"], path, offset, on_bytes)


async def _offset_of_last_lines(session: AgentSession, path: str, size: int, lines: int) -> int:
    """Where the last `lines` lines begin; reads backwards, bounded memory."""
    if lines <= 0:
        return size
    end, newlines = size, 0
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        data = (await session.request("read_file", path=path, offset=begin, limit=end - begin)).body
        position = len(data)
        while (position := data.rfind(b"\n", 0, position)) != -1:
            # A newline that ends the file ends its last line; it begins none.
            if begin + position + 1 < size:
                newlines += 1
                if newlines == lines:
                    return begin + position + 1
        end = begin
    return 0


async def _follow(session: AgentSession, target: Target, run_id: str, path: str, offset: int, on_bytes: Sink) -> None:
    """Bytes as they come, until the run has ended and all of its log was handed on."""
    position = offset

    async def copy() -> None:
        nonlocal position
        async with aclosing(session.stream("follow_file", path=path, offset=offset)) as events:
            async for event in events:
                what = event.header.get("what")
                if what == "data":
                    on_bytes(event.body)
                    position = int(event.header["offset"]) + len(event.body)
                elif what in ("truncated", "replaced"):
                    position = 0

    copying = asyncio.create_task(copy())
    try:
        condition = {"kind": "end"}
        async with aclosing(
            session.stream("wait_run", base=target.base, run_id=run_id, condition=condition, wait_s=FOREVER_S)
        ) as events:
            async for _ in events:
                if copying.done():
                    break
    finally:
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
    while rest := (await session.request("read_file", path=path, offset=position, limit=CHUNK_BYTES)).body:
        on_bytes(rest)
        position += len(rest)

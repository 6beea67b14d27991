"""Tell somebody how it went: one webhook, one command.

Rule: never in the way. Each has a deadline and one more try; what fails is a warning, never an error. The webhook's
address is a secret: it comes from an environment variable or a file, and no message holds more of it than its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import stat
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from orchestrator.agent.secret_values import masked
from orchestrator.probes.text import one_line, plain_text

WEBHOOK_LIMIT_S = 10.0
"""For one try, from the name look-up to the answer."""
COMMAND_LIMIT_S = 30.0
TRIES = 2
PAUSE_S = 1.0
TEXT_LIMIT = 1900
"""Characters: what the strictest of the usual chat services takes."""
KEPT_OUTPUT_BYTES = 2000


@dataclass(frozen=True)
class Message:
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """More keys of the JSON document, and ORCH_<NAME> of the command's environment: play, outcome, run_id, ..."""


@dataclass(frozen=True)
class Notified:
    said: tuple[str, ...]
    """What worked."""
    warnings: tuple[str, ...]
    """What did not, and why."""


async def notify(
    message: Message,
    *,
    webhook: str | None = None,
    command: Sequence[str] | None = None,
    webhook_limit_s: float = WEBHOOK_LIMIT_S,
    command_limit_s: float = COMMAND_LIMIT_S,
) -> Notified:
    """webhook: `env:NAME` or `file:PATH`; its address gets a JSON document with `text` (and the same as `content`).
    command: argv; the text is on its stdin. Both at once when both are given. Raises nothing."""
    tries = []
    if webhook is not None:
        tries.append(_post(webhook, message, webhook_limit_s))
    if command:
        tries.append(_run(command, message, command_limit_s))
    answers = await asyncio.gather(*tries)
    return Notified(
        said=tuple(said for said, _ in answers if said),
        warnings=tuple(warning for _, warnings in answers for warning in warnings),
    )


async def _post(reference: str, message: Message, limit_s: float) -> tuple[str, tuple[str, ...]]:
    url, warning = read_reference(reference)
    notes = (warning,) if warning else ()
    if not url:
        return "", notes
    host = _host(url)
    if host is None:
        return "", (*notes, f"the webhook in {reference} is not told: what stands there is no http(s) address")
    text = plain_text(message.text)[:TEXT_LIMIT]
    body = json.dumps({"text": text, "content": text, **message.facts}, default=str).encode()
    why = ""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        why = await _in_a_thread(url, body, limit_s)
        if not why:
            return f"told the webhook at {host}", notes
    return "", (*notes, f"the webhook at {host} was not told: {why}")


async def _in_a_thread(url: str, body: bytes, limit_s: float) -> str:
    """Empty: it worked. A daemon thread, because a name look-up that hangs can be left but not ended."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def tell(why: str) -> None:
        if not answer.done():
            answer.set_result(why)

    def work() -> None:
        why = _post_once(url, body, limit_s)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(tell, why)

    threading.Thread(target=work, name="orch-webhook", daemon=True).start()
    try:
        return await asyncio.wait_for(answer, limit_s)
    except TimeoutError:
        return _no_answer(limit_s)


def _no_answer(limit_s: float) -> str:
    return f"no answer within {limit_s:g} s"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *words: object, **named: object) -> None:
        """A POST that is sent elsewhere becomes a GET without its body: that tells nobody anything."""


def _post_once(url: str, body: bytes, limit_s: float) -> str:
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/json", "User-Agent": "orch"}, method="POST"
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=limit_s) as answer:
            answer.read(KEPT_OUTPUT_BYTES)
            return ""
    except urllib.error.HTTPError as error:
        with contextlib.suppress(OSError):
            error.close()
        # The server's own words may hold the address.
        return f"it answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
    except Exception as error:  # of sockets, TLS, http.client, and addresses that are none
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):  # the socket's own limit can pass a moment before ours
            return _no_answer(limit_s)
        kind = type(reason if isinstance(reason, BaseException) else error).__name__
        # Only sockets and TLS say nothing of the address but its host.
        return one_line(f"{kind}: {reason}", 200) if isinstance(reason, OSError) else kind


async def _run(command: Sequence[str], message: Message, limit_s: float) -> tuple[str, tuple[str, ...]]:
    why = ""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        why = await _run_once(command, message, limit_s)
        if not why:
            return f"told {command[0]}", ()
    return "", (f"{command[0]} was not told: {why}",)


async def _run_once(command: Sequence[str], message: Message, limit_s: float) -> str:
    """Empty: it ended with 0. Its output goes to a file, so that no child it leaves behind keeps us waiting; its text
    through a pipe, because this machine's disk may be what is full."""
    facts = {f"ORCH_{name.upper()}": _utf8(str(value)) for name, value in message.facts.items() if value is not None}
    with _file_or_nothing() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, **facts},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return one_line(str(error), 200)
        assert process.stdin is not None
        process.stdin.write(_utf8(message.text).encode() + b"\n")
        process.stdin.close()
        try:
            code = await asyncio.wait_for(process.wait(), limit_s)
            why = f"it ended with exit code {code}"
        except TimeoutError:
            code, why = 1, f"it did not end within {limit_s:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code == 0:
            return ""
        said.seek(0)
        # What is said here is recorded.
        printed = one_line(masked(said.read(KEPT_OUTPUT_BYTES).decode("utf-8", "replace"), os.environ), 200)
        return f"{why}: {printed}" if printed else why


def _file_or_nothing() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return Path(os.devnull).open("r+b")


def _utf8(text: str) -> str:
    """A name or a text from afar may hold halves of characters, which nothing can encode."""
    return text.encode("utf-8", "replace").decode()


def read_reference(reference: str, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """`env:NAME` or `file:PATH` -> (the secret, a warning). The secret is empty when there is none. environment: ours,
    unless it is another one's."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        found = (os.environ if environment is None else environment).get(name, "").strip()
        return found, "" if found else f"the webhook is not told: the environment has no {name}"
    if kind == "file" and name:
        path = Path(name).expanduser()
        try:
            open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
            found = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            return "", f"the webhook is not told: {path}: {getattr(error, 'strerror', None) or 'no text'}"
        if not found:
            return "", f"the webhook is not told: {path} is empty"
        return found, f"{path} holds a secret and others may read it: chmod 600 {path}" if open_to_others else ""
    return "", "the webhook is not told: it is named as env:NAME or file:PATH, for its address is a secret"


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None

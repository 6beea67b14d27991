"""The near half: one agent over there, many requests at once.

Rule: a request ends with the agent's own answer or its own refusal; a lost link is neither, and raises
OutcomeUnknownError for everything that was under way; UnreachableError where the session has only looked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.agent.bundle import NO_PYTHON_EXIT, build_bundle, start_argv
from orchestrator.agent.errors import LOOKS, NoPythonError, lost_error
from orchestrator.agent.exchange import Exchange, Header, Reply
from orchestrator.agent.far.framing import FrameDecoder, FrameError, encode_frame
from orchestrator.agent.far.liveness import BEAT_INTERVAL_S, Liveness
from orchestrator.errors import ContainerError, DeadlineError, OrchError, UnreachableError
from orchestrator.transport.protocol import Completed, RemoteProcess

START_LIMIT_S = 60.0
"""From the start of the bootstrap to its hello: a cold disk may be slow, the link has been proved already."""
CLOSE_LIMIT_S = 4.0
LAST_RESORT = "python3"
STDERR_KEPT_BYTES = 16 * 1024


class Starter(Protocol):
    """The part of a transport that an agent needs."""

    @property
    def label(self) -> str: ...

    async def start(self, argv: Sequence[str]) -> RemoteProcess: ...


class Runner(Protocol):
    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed: ...


@dataclass(frozen=True)
class Hello:
    python_version: str
    executable: str
    boot_id: str | None
    init_start_ticks: int | None
    """Start time of the container's process 1: tells one start of the container from the next."""
    hostname: str
    uid: int
    now_s: float
    """Unix time over there."""
    agent_hash: str


class AgentSession:
    """Use `open`; then `close` leaves nothing on either side."""

    hello: Hello
    on_host: Callable[[], Runner] | None = None
    """How to run something on the host that it is on, over the same connection. None: nobody said."""

    close_limit_s = CLOSE_LIMIT_S
    """`close` waits so long for the agent's end."""

    def __init__(self, process: RemoteProcess, label: str) -> None:
        self.label = label
        self._process = process
        self._exchanges: dict[int, Exchange] = {}
        self._last_id = 0
        self._writing = asyncio.Lock()
        self._liveness = Liveness()
        self._stderr = bytearray()
        self._lost: str | None = None
        self._only_looked = True
        self._greeted: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stderr_reader: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, transport: Starter, *, pythons: Sequence[str] = ()) -> AgentSession:
        """Starts one process through `transport`. Raises NoPythonError, ContainerError, DeadlineError,
        and what the transport raises."""
        tried = list(dict.fromkeys([*pythons, LAST_RESORT]))
        # Reading and packing the sources takes as long as a start over a kept connection: do both at once.
        packing = asyncio.ensure_future(asyncio.to_thread(build_bundle))
        try:
            process = await transport.start(start_argv(tried))
        finally:
            await asyncio.wait([packing])
        session = cls(process, transport.label)
        try:
            await session._greet(tried)
        except BaseException:
            await session._abandon()
            raise
        return session

    async def request(self, op: str, *, body: bytes = b"", timeout_s: float = 30.0, **params: Any) -> Reply:
        """One answer. Raises AgentOpError, DeadlineError, OutcomeUnknownError, UnreachableError."""
        async with self.exchange(op, body=body, **params) as exchange:
            try:
                async with asyncio.timeout(timeout_s):
                    reply = await exchange.receive()
                    while not reply.final:
                        reply = await exchange.receive()
                    return reply
            except TimeoutError as error:
                raise self._late(op, timeout_s) from error

    async def stream(
        self, op: str, *, body: bytes = b"", timeout_s: float | None = None, **params: Any
    ) -> AsyncGenerator[Reply]:
        """Events, then the final reply. Closing the iterator cancels the op. Raises as `request` does."""
        async with self.exchange(op, body=body, **params) as exchange:
            until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        reply = await exchange.receive()
                except TimeoutError as error:
                    raise self._late(op, timeout_s or 0.0) from error
                yield reply
                if reply.final:
                    return

    @contextlib.asynccontextmanager
    async def exchange(self, op: str, *, body: bytes = b"", **params: Any) -> AsyncIterator[Exchange]:
        """A request with frames in both directions. Leaving the block cancels it if it has not ended.

        Raises UnreachableError (nothing was sent: the link is gone already), OutcomeUnknownError."""
        if self._lost is not None:
            raise UnreachableError(f"{self.label}: {op} was not sent: {self._lost}", evidence=self.stderr_text())
        self._only_looked = self._only_looked and op in LOOKS
        self._last_id += 1
        exchange = Exchange(self._last_id, self._post)
        self._exchanges[exchange.request_id] = exchange
        try:
            await self._post({"id": exchange.request_id, "type": "request", "op": op, "params": params}, body)
            yield exchange
        finally:
            del self._exchanges[exchange.request_id]
            if not exchange.ended and self._lost is None:
                # In the background: the block may be left because this very task was cancelled.
                self._spawn(self._post({"id": exchange.request_id, "type": "cancel"}, b""))

    @property
    def lost(self) -> str | None:
        """Why there is no agent any more, in half a sentence; None while there is one."""
        return self._lost

    def stderr_text(self) -> str:
        """The last of what the agent, or its interpreter, complained about."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """Ends the agent and waits for it, for a few seconds at most. Never raises."""
        self._lose("the session was closed")
        with contextlib.suppress(OSError, OrchError, TimeoutError):
            async with asyncio.timeout(self.close_limit_s):
                await self._process.write_eof()
                await self._process.wait()
        await self._abandon()

    async def __aenter__(self) -> AgentSession:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _greet(self, tried: Sequence[str]) -> None:
        self._stderr_reader = self._spawn(self._read_stderr())
        self._spawn(self._read_frames())
        with contextlib.suppress(OSError, OrchError):  # the reader finds out why
            await self._process.write(build_bundle().preamble)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                self.hello = await asyncio.shield(self._greeted)
        except TimeoutError as error:
            raise DeadlineError(
                f"{self.label}: the agent did not start within {START_LIMIT_S:g} s",
                evidence=self.stderr_text(),
                way_out="orch exec -- uptime",  # does it answer at all, and how busy is it?
            ) from error
        except ConnectionError as error:
            status = await self._process.wait()
            await self._stderr_end()
            if status.code == NO_PYTHON_EXIT:
                raise NoPythonError(self.label, tried, self.stderr_text()) from error
            raise ContainerError(
                f"{self.label}: the agent ended before it was ready (exit code {status.code})",
                evidence=self.stderr_text(),
                way_out="orch exec -- python3 --version",
            ) from error
        self._spawn(self._beat())

    async def _read_frames(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := await self._process.read(1 << 18):
                self._liveness.touch()
                for header, body in decoder.feed(data):
                    self._accept(header, body)
            await self._stderr_end()
            why = "the agent's stream ended"
        except FrameError as error:
            why = f"the agent's stream is broken: {error}"
        except (OSError, OrchError) as error:
            why = f"the link was lost: {error}"
        self._lose(why)

    def _accept(self, header: Header, body: bytes) -> None:
        if header.get("type") == "hello":
            if not self._greeted.done():
                self._greeted.set_result(Hello(**header["data"]))
            return
        exchange = self._exchanges.get(header.get("id", -1))
        if exchange is not None:  # else: it was cancelled while this frame was on its way
            exchange.accept(header, body)

    async def _read_stderr(self) -> None:
        with contextlib.suppress(OSError, OrchError):
            while data := await self._process.read_stderr(1 << 16):
                self._stderr += data
                del self._stderr[:-STDERR_KEPT_BYTES]

    async def _stderr_end(self) -> None:
        """Let the last words come in; they are the evidence."""
        if self._stderr_reader is not None:
            await asyncio.wait([self._stderr_reader], timeout=1.0)

    async def _beat(self) -> None:
        while self._lost is None:
            if self._liveness.left_s() <= 0:
                self._lose(f"nothing came from the agent for {self._liveness.limit_s:g} s")
                await self._process.abort()
                return
            with contextlib.suppress(OrchError):
                await self._post({"type": "beat"}, b"")
            await asyncio.sleep(BEAT_INTERVAL_S)

    async def _post(self, header: Header, body: bytes) -> None:
        # Shielded: a frame that was begun must be finished, even if whoever wanted it gave up half-way.
        writing = asyncio.ensure_future(self._write(encode_frame(header, body)))
        self._tasks.add(writing)
        writing.add_done_callback(self._written)
        await asyncio.shield(writing)

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._tasks.discard(writing)
        if not writing.cancelled():
            writing.exception()  # seen, even if nobody waits any more

    async def _write(self, frame: bytes) -> None:
        try:
            async with self._writing:
                await self._process.write(frame)
        except (OSError, OrchError) as error:
            self._lose(f"the link was lost: {error}")
            raise self._lost_error() from error

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
        if not self._greeted.done():
            self._greeted.set_exception(ConnectionError(why))
        self._greeted.exception()  # seen, even if nobody waits
        for exchange in self._exchanges.values():
            exchange.fail(self._lost_error())

    def _lost_error(self) -> OrchError:
        return lost_error(self.label, str(self._lost), only_looked=self._only_looked, evidence=self.stderr_text())

    def _late(self, op: str, timeout_s: float) -> DeadlineError:
        return DeadlineError(
            f"{self.label}: no answer to {op} within {timeout_s:g} s; the agent was told to give it up",
            evidence=self.stderr_text(),
            way_out="orch status   what it was doing may have been done in part",
        )

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def quietly() -> None:
            with contextlib.suppress(OrchError):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _abandon(self) -> None:
        await self._process.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

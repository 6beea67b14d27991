"""How long `true` takes over each transport: cold, over a shared connection, and on an open one.

Rule: against a real sshd on this machine (`sshd -i` behind ProxyCommand), without a network: only what the programs
cost. Run from the project's folder: python benches/transport_latency.py
"""

from __future__ import annotations

import asyncio
import os
import pickle
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from orchestrator.container.target import open_host  # noqa: E402
from orchestrator.inventory.model import Host  # noqa: E402
from orchestrator.transport.openssh import OpensshTransport  # noqa: E402
from tests.contract.places import Stage  # noqa: E402

ROUNDS = 7
ONE_SHOT = """
import asyncio, pickle, sys
host = pickle.load(sys.stdin.buffer)
from orchestrator.container.target import open_host
async def main():
    transport = await open_host(host)
    await transport.run(["true"], timeout_s=60)
    await transport.close()
asyncio.run(main())
"""


def one_shot_ms(host: Host) -> float:
    """A process of its own, imports and all."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", ONE_SHOT], input=pickle.dumps(host), check=True, cwd=ROOT)
    return (time.perf_counter() - start) * 1000


async def open_ms(host: Host) -> list[float]:
    transport = await open_host(host)
    await transport.run(["true"], timeout_s=60)
    found = []
    for _ in range(ROUNDS * 3):
        start = time.perf_counter()
        await transport.run(["true"], timeout_s=60)
        found.append((time.perf_counter() - start) * 1000)
    await transport.close()
    return found


async def stdin_mb_per_s(host: Host) -> float:
    transport = await open_host(host)
    await transport.run(["true"], timeout_s=60)
    data = bytes(100_000_000)
    start = time.perf_counter()
    await transport.run(["sh", "-c", "cat >/dev/null"], stdin=data, timeout_s=120)
    taken = time.perf_counter() - start
    await transport.close()
    return 100 / taken


def main() -> None:
    stage = Stage()
    os.environ["XDG_RUNTIME_DIR"] = str(stage.folder)
    try:
        server = stage.server()
        server.set_server("SetEnv SHLVL=3")  # the login's own rc file is not what is measured
        for name in ("local", "openssh", "asyncssh"):
            host = server.host(name)
            cold, again = [], []
            for _ in range(ROUNDS):
                if name == "openssh":
                    asyncio.run(OpensshTransport(host).end_shared_connection())
                cold.append(one_shot_ms(host))
                again.append(one_shot_ms(host))
            is_open = asyncio.run(open_ms(host))
            print(
                f"{name:9} one command {statistics.median(cold):5.0f} ms   again {statistics.median(again):5.0f} ms"
                f"   on an open transport {statistics.median(is_open):6.1f} ms"
                f"   stdin {asyncio.run(stdin_mb_per_s(host)):5.0f} MB/s"
            )
    finally:
        stage.end()


if __name__ == "__main__":
    main()

"""Which transport a host gets.

Rule: a client library is imported only when it is used: `--help` must not wait for one.
"""

from __future__ import annotations

from orchestrator.inventory.model import Host
from orchestrator.transport.protocol import Transport
from orchestrator.transport.tracing import Trace


async def connect(host: Host, *, trace: Trace | None = None) -> Transport:
    """Raises UnreachableError, HostKeyError, AuthError, InventoryError; openssh does so at the first `start`."""
    if host.transport == "local":
        from orchestrator.transport.local import LocalTransport

        return LocalTransport(trace=trace)
    if host.transport == "asyncssh":
        from orchestrator.transport.asyncssh_transport import AsyncsshTransport

        return await AsyncsshTransport.connect(host, trace=trace)
    from orchestrator.transport.openssh import OpensshTransport

    return OpensshTransport(host, trace=trace)

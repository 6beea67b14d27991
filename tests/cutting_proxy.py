"""A link to a server on loopback that breaks where it is told to: between a client and the real thing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class CuttingProxy:
    """decide(bytes that the client sent in this connection since its last request began) -> what becomes of it: "pass",
    "cut" (both ends are closed), "stall" (nothing moves any more) or "deaf" (the answer is dropped, then cut)."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.decide: Callable[[bytes], str] = lambda sent: "pass"
        self.hit = threading.Event()
        """Set when something was not passed."""
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._listener.close()

    def restore(self) -> None:
        self.decide = lambda sent: "pass"
        self.hit.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            deaf = threading.Event()
            threading.Thread(target=self._back, args=(server, client, deaf), daemon=True).start()
            sent = b""
            while data := client.recv(65536):
                if data.startswith((b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")):
                    sent = b""
                sent += data
                what = self.decide(sent)
                if what != "pass":
                    self.hit.set()
                if what == "cut":
                    return
                if what == "stall":
                    self._over.wait(60)
                    return
                if what == "deaf":
                    deaf.set()
                server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if deaf.is_set() and not data.startswith(b"HTTP/1.1 100 "):
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

"""Where a kind of container is to be reached, as far as a kind must know. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.inventory.model import Become


@dataclass(frozen=True)
class Place:
    label: str
    """For messages: `ct200 (container 200 on root@10.1.2.6)`."""
    login: str
    """What a person would type to be on the host: `ssh root@10.1.2.6`; empty on this machine."""
    user: str | None
    become: Become
    container_id: int | None

    def typed(self, command: str) -> str:
        """`command` on the host, as a person would type it from here."""
        words = f"sudo {command}" if self.become == "sudo" else command
        return f"{self.login} {words}" if self.login else words

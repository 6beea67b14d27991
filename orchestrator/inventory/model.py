"""The inventory as frozen facts. Made only by `read`; used by everybody.

Rule: every value is already checked and resolved (paths absolute, defaults filled); unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TransportName = Literal["auto", "openssh", "asyncssh", "local"]
ContainerKind = Literal["pct", "none"]
EnvironmentCheck = Literal["refuse", "warn", "off"]
Become = Literal["none", "sudo"]


@dataclass(frozen=True)
class Host:
    """The machine SSH reaches."""

    name: str
    address: str
    """Host name, address or ssh_config alias."""
    transport: TransportName
    user: str | None
    """None: what ssh_config or the local login says."""
    port: int | None
    identity_file: Path | None
    ssh_config_file: Path | None
    """None: the user's and the system's own."""
    known_hosts_file: Path | None
    """None: what ssh_config says, else ~/.ssh/known_hosts."""
    connect_timeout_s: float
    keepalive_interval_s: float
    keepalive_count: int
    become: Become

    @property
    def login(self) -> str:
        """`root@10.1.2.6`, for messages."""
        return f"{self.user}@{self.address}" if self.user else self.address


@dataclass(frozen=True)
class Caches:
    """Where the payload's compile caches live on the target. None: below `<root>/orch/caches/live`."""

    inductor: str | None
    triton: str | None
    extensions: str | None


@dataclass(frozen=True)
class Topology:
    """How many devices hold targets, how many hold drafter replicas."""

    targets: int
    drafters: int


@dataclass(frozen=True)
class Expected:
    """What a healthy run of this payload looks like; compared, never enforced by deploy."""

    tokens_per_s_min: float | None
    tokens_per_s_max: float | None
    hashes: Mapping[str, str]
    """Path in the payload folder (or absolute on the target) -> `md5:<hex>` or `sha256:<hex>`."""


@dataclass(frozen=True)
class Environment:
    """A Python environment that `orch env sync` builds on the target from a lock."""

    purpose: str
    lock: Path
    """Requirements with hashes, absolute on the controller."""
    python: str
    """The interpreter on the target that it is made with."""
    indexes: tuple[str, ...]
    """Package indexes that the wheels come from; none: what pip is configured with. They may hold a password."""


@dataclass(frozen=True)
class Payload:
    """What is shipped and how it is started."""

    name: str
    folder: Path
    """Absolute on the controller."""
    command: tuple[str, ...]
    """Started in the release folder. A first word `python` means `python` below, if that is set."""
    session: str | None
    """tmux session name; None: no tmux wanted."""
    python: str | None
    """The interpreter of an environment that somebody else made, e.g. /root/venv/bin/python."""
    environments: Mapping[str, Environment]
    """Purpose -> environment that orch makes."""
    environment: str | None
    """The purpose of the one that the command runs in; None: `python` says, or nothing does."""
    environment_check: EnvironmentCheck
    """What a launch does when the environment is not as its lock or baseline says."""
    variables: Mapping[str, str]
    """Environment variables of the training."""
    data: str | None
    model: str | None
    caches: Caches
    topology: Topology | None
    devices: int | None
    """GPUs that preflight must find; None: none are asked for. Defaults to the topology's sum."""
    min_free_disk_gib: float
    stop_timeout_s: float
    settings: Mapping[str, object]
    """Passed to the payload in the run spec, before `--set`."""
    exclude: tuple[str, ...]
    """Glob patterns of payload files that are not shipped, beside the built-in ones."""
    expected: Expected
    warmup: tuple[str, ...] = ()
    """Compiles what `command` will ask for, and ends with success; empty: the payload has no such command."""


@dataclass(frozen=True)
class Target:
    """A host or container that work runs on."""

    name: str
    host: Host
    kind: ContainerKind
    container_id: int | None
    """None for kind `none`: the host itself."""
    root: str
    """Absolute folder on the target; everything of orch lives in `<root>/orch`."""
    python: str | None
    """Interpreter for the agent, tried before python3."""
    payload: Payload | None

    @property
    def base(self) -> str:
        return self.root.rstrip("/") + "/orch"

    @property
    def label(self) -> str:
        """For messages: `ct200 (container 200 on root@10.1.2.6)`."""
        if self.kind == "none":
            return self.name if self.name == self.host.login else f"{self.name} ({self.host.login})"
        return f"{self.name} (container {self.container_id} on {self.host.login})"


@dataclass(frozen=True)
class Inventory:
    path: Path
    hosts: Mapping[str, Host]
    targets: Mapping[str, Target]
    groups: Mapping[str, tuple[str, ...]]
    """Group name -> target names."""
    payloads: Mapping[str, Payload]

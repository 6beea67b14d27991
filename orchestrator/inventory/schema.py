"""What may stand in an inventory: strict pydantic models, used by `read` only and turned into facts at once.

Rule: a model checks one entry by itself; what concerns several entries is checked in `relations`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from orchestrator.inventory.model import Become, EnvironmentCheck, TransportName


def _pattern(pattern: str, sentence: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(sentence)
        return value

    return AfterValidator(check)


def _name(value: str) -> str:
    if value.startswith("-"):
        raise ValueError("a name may not begin with a dash: it would be taken for an option")
    if value.isdigit():
        raise ValueError(f"a name may not be all digits: {value} selects a container id; write for example ct{value}")
    if value == "all":
        raise ValueError("`all` selects every target and cannot be a name")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", value):
        raise ValueError("a name has 1 to 64 letters, digits, `_`, `-` or `.`")
    return value


def _address(value: str) -> str:
    if value.startswith("-"):
        raise ValueError("an address may not begin with a dash: ssh would take it for an option")
    if re.search(r"[\s,]", value):
        raise ValueError("one address, without spaces or commas; each host is an entry of its own")
    if "@" in value:
        raise ValueError("the login goes into `user:`, the address stands alone")
    if value.startswith("["):
        raise ValueError("write an IPv6 address without brackets; a port goes into `port:`")
    if value.count(":") == 1:
        raise ValueError("the port goes into `port:`, the address stands alone")
    if re.fullmatch(r"[0-9.]+", value) or ":" in value:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise ValueError("this is not an address: IPv4 has four numbers up to 255, IPv6 eight groups") from None
    elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", value):
        raise ValueError("a host name has letters, digits, `.`, `-` or `_`")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("the path must be absolute: it is on the target")
    if ".." in value.split("/") or "\n" in value:
        raise ValueError("the path may not hold `..` or a line break")
    return value


def _program(value: str) -> str:
    if value.startswith("/"):
        return _absolute(value)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", value):
        raise ValueError("an absolute path on the target, or a program name like python3.12")
    return value


def _printable_line(value: str) -> str:
    if "\n" in value or "\t" in value:
        raise ValueError("must be one line")
    return value


def _command(value: list[str]) -> list[str]:
    if value and value[0].startswith("-"):
        raise ValueError("the first word must be a program, not an option")
    return value


Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Line = Annotated[Text, AfterValidator(_printable_line)]
Name = Annotated[str, AfterValidator(_name)]
Address = Annotated[str, AfterValidator(_address)]
Absolute = Annotated[Line, AfterValidator(_absolute)]
Program = Annotated[Line, AfterValidator(_program)]
User = Annotated[
    str, _pattern(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}", "a login name has letters, digits, `_`, `.` or `-`")
]
Session = Annotated[
    str,
    _pattern(
        r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}",
        "a tmux session name has letters, digits, `_` or `-` (tmux itself changes `.` and `:`)",
    ),
]
Variable = Annotated[str, _pattern(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name has letters, digits and `_`")]
Hash = Annotated[
    str, _pattern(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", "write `md5:` and 32 hex digits, or `sha256:` and 64")
]
Seconds = Annotated[float, Field(gt=0, le=86400)]


class Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class KeepaliveEntry(Entry):
    interval_s: Seconds = 5.0
    count: Annotated[int, Field(ge=1, le=100)] = 3


class ContainerEntry(Entry):
    id: Annotated[int, Field(ge=100, le=999_999_999)]
    kind: Literal["pct"] = "pct"
    root: Absolute = "/root"
    python: Program | None = None
    payload: Name | None = None


class HostEntry(Entry):
    address: Address | None = None
    user: User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    identity_file: Line | None = None
    ssh_config: Line | None = None
    known_hosts: Line | None = None
    connect_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    keepalive: KeepaliveEntry = KeepaliveEntry()
    become: Become = "none"
    transport: TransportName = "auto"
    containers: dict[Name, ContainerEntry] = Field(default_factory=dict)
    root: Absolute | None = None
    python: Program | None = None
    payload: Name | None = None


class TopologyEntry(Entry):
    targets: Annotated[int, Field(ge=1, le=1024)]
    drafters: Annotated[int, Field(ge=1, le=1024)]


class CachesEntry(Entry):
    inductor: Absolute | None = None
    triton: Absolute | None = None
    extensions: Absolute | None = None


class RangeEntry(Entry):
    min: Annotated[float, Field(ge=0)] | None = None
    max: Annotated[float, Field(ge=0)] | None = None


class ExpectedEntry(Entry):
    tokens_per_s: RangeEntry = RangeEntry()
    hashes: dict[Line, Hash] = Field(default_factory=dict)


class EnvironmentEntry(Entry):
    lock: Line
    python: Program = "python3"
    indexes: list[Line] = Field(default_factory=list)


class PayloadEntry(Entry):
    folder: Line
    command: Annotated[list[Text], Field(min_length=1), AfterValidator(_command)]
    warmup: Annotated[list[Text], AfterValidator(_command)] | None = None
    session: Session | None = None
    python: Program | None = None
    environments: dict[Name, EnvironmentEntry] = Field(default_factory=dict)
    environment: Name | None = None
    environment_check: EnvironmentCheck = "warn"
    variables: dict[Variable, Annotated[str, StringConstraints(max_length=65536)]] = Field(default_factory=dict)
    data: Line | None = None
    model: Line | None = None
    caches: CachesEntry = CachesEntry()
    topology: TopologyEntry | None = None
    devices: Annotated[int, Field(ge=0, le=1024)] | None = None
    min_free_disk_gib: Annotated[float, Field(ge=0)] = 1.0
    stop_timeout_s: Seconds = 120.0
    settings: dict[str, object] = Field(default_factory=dict)
    exclude: list[Line] = Field(default_factory=list)
    expected: ExpectedEntry = ExpectedEntry()


class InventoryEntry(Entry):
    hosts: Annotated[dict[Name, HostEntry], Field(min_length=1)]
    groups: dict[Name, Annotated[list[str], Field(min_length=1)]] = Field(default_factory=dict)
    payloads: dict[Name, PayloadEntry] = Field(default_factory=dict)

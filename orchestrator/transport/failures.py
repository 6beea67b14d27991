"""Why ssh failed, from what it printed. PURE.

Rule: the text is searched, never compared whole: it comes wrapped, escaped, prefixed and mixed with noise.
Both clients end in `failure_error`, so a person reads one sentence for one cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.errors import AuthError, HostKeyError, InventoryError, OrchError, UnreachableError
from orchestrator.inventory.model import Host
from orchestrator.transport.ssh_settings import known_hosts_name, typed_login

Kind = Literal[
    "host_key_changed",
    "host_key_unknown",
    "host_key_revoked",
    "auth_too_many_keys",
    "auth_denied",
    "bad_target",
    "bad_settings",
    "server_throttled",
    "name_not_found",
    "refused",
    "timed_out",
    "no_route",
    "no_common_algorithm",
    "closed_early",
    "lost",
    "unknown",
]


@dataclass(frozen=True)
class SshFailure:
    kind: Kind
    facts: dict[str, str] = field(default_factory=dict)
    """What the text named: host, methods, key_type, fingerprint, offending_type, known_hosts_file, line."""


# The first that is found decides; a more telling line wins over the general one that follows it.
_SIGNS: tuple[tuple[Kind, str], ...] = (
    ("host_key_revoked", r"REVOKED HOST KEY DETECTED|[Hh]ost key .{0,200}(?:is|was) revoked|marked as revoked"),
    ("host_key_changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for (?P<host>\S+) has changed"),
    ("host_key_unknown", r"No (?P<key_type>\S+) host key is known for (?P<host>\S+) and"),
    ("host_key_unknown", r"authenticity of host '(?P<host>[^' ]+)[^']*' can't be established"),
    ("host_key_unknown", r"Host key verification failed"),
    ("auth_too_many_keys", r"Too many authentication failures"),
    ("auth_denied", r"Permission denied \((?P<methods>[a-z0-9@.,-]+)\)"),
    ("auth_denied", r"No supported authentication methods available|Permission denied, please try again"),
    ("bad_target", r"unknown option -- |usage: ssh \[|hostname contains invalid characters|Could not parse .{0,9}host"),
    ("bad_settings", r"Bad configuration option|Bad owner or permissions on|terminating, \d+ bad configuration option"),
    ("bad_settings", r"(?:Can't open user config file|keyword \S+ extra arguments at end of line)"),
    ("server_throttled", r"Exceeded MaxStartups|Not allowed at this time|beginning MaxStartups throttling"),
    (
        "name_not_found",
        r"Could not resolve hostname|Name or service not known|nodename nor servname|"
        r"Temporary failure in name resolution|No address associated with hostname",
    ),
    ("refused", r"Connection refused"),
    (
        "timed_out",
        r"(?:Connection|Operation) timed out|timed out during banner exchange|Connection to .{1,80} timed out",
    ),
    ("no_route", r"No route to host|Network is (?:unreachable|down)|Host is down"),
    ("no_common_algorithm", r"Unable to negotiate with|no matching (?:key exchange|host key|cipher|MAC)"),
    (
        "lost",
        r"Connection to \S+ closed by remote host|Timeout, server \S+ not responding|client_loop: send disconnect",
    ),
    (
        "closed_early",
        r"kex_exchange_identification|ssh_exchange_identification|banner exchange|Connection closed by|"
        r"Connection reset by|[Bb]roken pipe|Connection lost|Received disconnect|UNKNOWN port 65535|invalid banner",
    ),
)
_DETAILS = (
    r"fingerprint for the (?P<key_type>\S+) key sent by the remote host is\s+"
    r"(?P<fingerprint>SHA256:[A-Za-z0-9+/=]+|(?:MD5:)?[0-9a-f]{2}(?::[0-9a-f]{2})+)",
    r"Offending (?P<offending_type>\S+) key in (?P<known_hosts_file>\S+?):(?P<line>\d+)",
    r"Host key for (?P<host>\S+) has changed",
)
_STALE_MASTER = re.compile(
    r"mux_client_hello_exchange|mux_client_request_session: read from master failed|"
    r"mux_client_request_session: write packet|[Cc]ontrol socket connect\([^)]*\): Connection refused"
)


def describe(text: str) -> SshFailure:
    """The cause that ssh's stderr names. Kind `unknown` when it names none."""
    plain = re.sub(r"\\+r|\\+n|\r", "\n", text).replace('\\"', '"')
    for kind, pattern in _SIGNS:
        found = re.search(pattern, plain)
        if found is None:
            continue
        facts = {name: value for name, value in found.groupdict().items() if value}
        if kind in ("host_key_changed", "host_key_revoked"):
            for detail in _DETAILS:
                more = re.search(detail, plain)
                facts.update({name: value for name, value in (more.groupdict() if more else {}).items() if value})
        return SshFailure(kind, facts)
    return SshFailure("unknown")


def is_stale_master(text: str) -> bool:
    """The shared connection was gone before it opened a session for us: nothing was executed."""
    return _STALE_MASTER.search(text) is not None


def failure_error(failure: SshFailure, host: Host, *, evidence: str = "", hop: str | None = None) -> OrchError:
    """The error to raise when nothing was executed. hop: the jump host that failed, if it was not `host`."""
    label = host.login if hop is None else f"{host.login}: the jump host {hop}"
    maker = _MAKERS.get(failure.kind)
    if maker is not None:
        kind, sentence, way_out = maker
        way_out = way_out.format(login=typed_login(host) if hop is None else f"ssh {hop}", name=host.name)
        return kind(f"{label}: {sentence}", evidence=evidence, way_out=way_out)
    if failure.kind == "host_key_unknown":
        return HostKeyError(
            f"{label}: its host key is not known here",
            evidence=evidence,
            way_out=f"orch trust {host.name}" if hop is None else f"check its key yourself, once: ssh {hop}",
        )
    if failure.kind == "host_key_changed":
        forget = known_hosts_name(host.address, host.port) if hop is None else hop
        file = f" -f {host.known_hosts_file}" if host.known_hosts_file is not None else ""
        then = f"orch trust {host.name}" if hop is None else f"ssh {hop}"
        return HostKeyError(
            f"{label}: its host key is not the one known here: somebody else's machine, or installed anew",
            evidence=evidence,
            way_out=f"find out why; only if it is as it should be: ssh-keygen -R '{forget}'{file} && {then}",
        )
    return UnreachableError(
        f"{label}: ssh failed before anything was executed",
        evidence=evidence,
        way_out=f"see more: {typed_login(host)} -v",
    )


def shell_refused(label: str, exit_code: int, evidence: str) -> AuthError:
    """The connection is there, and no marker came: the account's shell did something else."""
    return AuthError(
        f"{label}: the login worked, but its shell did not run the command (exit {exit_code})",
        evidence=evidence,
        way_out="check the account's login shell, its rc files and a forced command in authorized_keys",
    )


_MAKERS: dict[Kind, tuple[type[OrchError], str, str]] = {
    "host_key_revoked": (HostKeyError, "its host key is marked as revoked here", "do not connect; ask who revoked it"),
    "auth_too_many_keys": (
        AuthError,
        "it was offered too many keys and hung up",
        "name the one key: `identity_file:` in the inventory",
    ),
    "auth_denied": (AuthError, "the login was refused", "try it by hand: {login} true"),
    "bad_target": (
        InventoryError,
        "this is not a name that ssh can reach",
        "correct `address:` of {name} in the inventory",
    ),
    "bad_settings": (InventoryError, "ssh does not accept its own settings", "correct the named ssh_config line"),
    "server_throttled": (
        UnreachableError,
        "the host is up, but takes no more logins at the moment (MaxStartups)",
        "wait a little, or connect less at once",
    ),
    "name_not_found": (UnreachableError, "the name cannot be resolved", "correct `address:` of {name}, or DNS"),
    "refused": (UnreachableError, "the connection was refused: no SSH server listens there", "check address and port"),
    "timed_out": (UnreachableError, "no answer in time", "check address, route and firewall"),
    "no_route": (UnreachableError, "there is no route to it", "check the network, or the VPN"),
    "no_common_algorithm": (
        UnreachableError,
        "client and server have no algorithm in common",
        "allow one for this host in ssh_config",
    ),
    "closed_early": (
        UnreachableError,
        "the server hung up before the login (busy, blocked, or not an SSH server)",
        "see more: {login} -v",
    ),
    "lost": (UnreachableError, "the connection was lost before a command began", "try again"),
}

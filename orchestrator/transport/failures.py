"""Why ssh failed, from what it printed. PURE.

Rule: the text is searched, never compared whole: it comes wrapped, escaped, prefixed and mixed with noise.
Both clients end in `failure_error`, so a person reads one sentence for one cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from orchestrator.errors import AuthError, HostKeyError, InventoryError, OrchError, UnreachableError
from orchestrator.inventory.model import Host
from orchestrator.transport.ssh_settings import known_hosts_name, typed_login

if TYPE_CHECKING:
    from orchestrator.transport.signs import Told

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
    "bad_key_file",
    "account_expired",
    "no_logins",
    "no_shell",
    "unreachable",
    "jump_failed",
    "ssh_missing",
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
_WORDS: tuple[tuple[Kind, str], ...] = (
    ("host_key_revoked", r"REVOKED HOST KEY DETECTED|[Hh]ost key .{0,200}(?:is|was) revoked|marked as revoked"),
    ("host_key_changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for (?P<host>\S+) has changed"),
    ("host_key_unknown", r"No (?P<key_type>\S+) host key is known for (?P<host>\S+) and"),
    ("host_key_unknown", r"authenticity of host '(?P<host>[^' ]+)[^']*' can't be established"),
    ("host_key_changed", r"Host key for server '(?P<host>[^'\n]{1,255})' does not match"),  # paramiko
    ("host_key_unknown", r"Host key is not trusted for host (?P<host>\S{1,255})"),  # asyncssh
    ("host_key_unknown", r"Server '(?P<host>[^'\n]{1,255})' not found in known_hosts"),
    ("host_key_unknown", r"Host key verification failed"),
    (
        "bad_key_file",
        r"Permissions \d+ for '(?P<key_file>[^'\n]{1,300})' are too open|"
        r"Load key \"(?P<key_file2>[^\"\n]{1,300})\": (?:invalid format|error in libcrypto|bad permissions)|"
        r"Identity file (?P<key_file3>[^\n]{1,300}) not accessible(?=[\s\S]{0,2000}Permission denied)",
    ),
    ("bad_key_file", r"UNPROTECTED PRIVATE KEY FILE"),
    ("no_logins", r"pam_nologin|Unprivileged users are not permitted to log in|System is booting up"),
    ("no_shell", r"This account is currently not available"),
    ("account_expired", r"[Aa]ccount has expired|password has expired|Password change required"),
    ("auth_too_many_keys", r"Too many authentication failures"),
    ("auth_denied", r"Permission denied \((?P<methods>[a-z0-9@.,-]+)\)"),
    ("auth_denied", r"Permission denied for user \S{1,80} on host|Authentication failed\.|AuthenticationException"),
    ("auth_denied", r"No supported authentication methods available|Permission denied, please try again"),
    ("bad_target", r"unknown option -- |usage: ssh \[|hostname contains invalid characters|Could not parse .{0,9}host"),
    ("bad_settings", r"Bad configuration option|Bad owner or permissions on|terminating, \d+ bad configuration option"),
    ("bad_settings", r"(?:Can't open user config file|keyword \S+ extra arguments at end of line)"),
    ("bad_settings", r"too long for Unix domain socket"),
    (
        "jump_failed",
        r"stdio forwarding failed|channel \d+: open failed: (?P<reason>[^\n]{1,120})",
    ),
    ("ssh_missing", r"ssh: (?:command )?not found|ssh: No such file"),
    (
        "server_throttled",
        r"Exceeded MaxStartups|Not allowed at this time|beginning MaxStartups throttling|"
        r"Session open refused by peer",
    ),
    (
        "name_not_found",
        r"Could not resolve hostname|Name or service not known|nodename nor servname|"
        r"Temporary failure in name resolution|No address associated with hostname",
    ),
    ("refused", r"(?<!\): )Connection refused"),  # `Control socket connect(/x): Connection refused` is of this machine
    ("unreachable", r"Failed to connect to the host via ssh\.?\s*(?=['\"])"),  # Ansible, without a word of why
    ("unreachable", r"Unable to connect to port (?P<port>\d+) on (?P<host>\S{1,255})"),  # paramiko
    (
        "timed_out",
        r"(?:Connection|Operation) timed out|timed out during banner exchange|Connection to .{1,80} timed out",
    ),
    (
        "no_route",
        r"No route to host|Network is (?:unreachable|down)|Host is down|"
        r"port \d+: (?:Permission denied|Operation not permitted)",
    ),
    ("no_common_algorithm", r"Unable to negotiate with|no matching (?:key exchange|host key|cipher|MAC)"),
    (
        "lost",
        r"Connection to \S+ closed by remote host|Timeout, server \S+ not responding|client_loop: send disconnect|"
        r"Shared connection to \S+ closed|"
        r"mux_client_request_session: read from master failed|packet_write_wait: |"
        r"ssh_dispatch_run_fatal: |Bad packet length",
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
    r"Their offer: (?P<offer>[\w@.,-]{1,400})",
)
_SUBJECTS = (
    r"Received disconnect from (?P<host>\S{1,255}?)(?: port (?P<port>\d+):|: )\d+:|"
    r"(?:[Cc]onnection (?:reset|closed|refused)|Disconnected) (?:by|from) "
    r"(?:(?:authenticating|invalid) user \S{1,80} )?(?P<host2>\S{1,255}) port (?P<port2>\d+)|"
    r"connect to (?:host|address) (?P<host3>\S{1,255}) port (?P<port3>\d+)|"
    r"resolve hostname (?P<host4>[^:\s]{1,255})|"
    r"(?P<user>[\w.-]{1,64})@(?P<host5>[\w.:-]{1,255}): Permission denied|"
    r"(?:fatal|failed|unreachable): \[(?P<host6>[^\]\n]{1,255})\]|"
    r"^<(?P<host7>[^>\n]{1,255})> \(|"
    r"remote host \"(?P<host8>[^\"\n]{1,255})\"|"
    r"Unable to negotiate with (?P<host9>\S{1,255}) port (?P<port9>\d+)|"
    r"[Cc]onnection to (?P<host10>[^\s:]{1,255})(?: port (?P<port10>\d+))?(?::| closed| timed out)|"
    r"Timeout, server (?P<host11>\S{1,255}) not responding|"
    r"^(?P<host12>[\w.-]{1,255}) \| (?:UNREACHABLE|FAILED)|"
    r"Permanently added '\[?(?P<host13>[^'\],\n]{1,255})|"
    r"host key is known for (?P<host14>\S{1,255}) and|"
    r"authenticity of host '(?P<host15>[^' ]{1,255})|"
    r"host key for (?P<host17>\S{1,255}) is marked|"
    r"while connecting to (?P<host16>[^\s:]{1,255}):(?P<port16>\d+)"
)
_ESCAPED_ENDS = r"(?:\\+r)?\\+n|\\+r|\r\n|\r"
_CLOCK = r"^\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?\]?[ \t]+"
_NEXT_ADDRESS = r"debug1: connect to address [^\n]{0,300}(?=(?:\n[^\n]{0,300}){1,6}\n[^\n]{0,40}Connection established)"
"""Of a name's addresses one that did not answer, where another did."""
_STALE_MASTER = (
    r"mux_client_hello_exchange|mux_client_request_session: read from master failed|"
    r"mux_client_request_session: write packet|[Cc]ontrol socket connect\([^)]*\): Connection refused"
)


@cache
def _signs() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Compiled when ssh has failed: a connection that works does not wait for them."""
    return tuple((kind, re.compile(pattern)) for kind, pattern in _WORDS)


@cache
def _details() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _DETAILS)


def describe(text: str) -> SshFailure:
    """The cause that ssh's stderr names. Kind `unknown` when it names none."""
    plain = _without_escapes(text)
    for kind, pattern in _signs():
        found = pattern.search(plain)
        if found is None:
            continue
        facts = _facts(found)
        if kind in ("host_key_changed", "host_key_revoked"):
            for detail in _details():
                more = detail.search(plain)
                facts.update(_facts(more) if more else {})
        return SshFailure(kind, facts)
    return SshFailure("unknown")


def read_ssh_failures(text: str) -> tuple[Told, ...]:
    """Every failure that a text tells of, also one that another program wrote (a log of CI, of Ansible)."""
    from orchestrator.transport.signs import read_failures  # `orch read` only

    return read_failures(_without_escapes(text), _signs(), re.compile(_SUBJECTS, re.MULTILINE), _details())


def _facts(found: re.Match[str]) -> dict[str, str]:
    return {name.rstrip("0123456789"): value for name, value in found.groupdict().items() if value}


def _without_escapes(text: str) -> str:
    """Line ends and quotes that were escaped, and a clock before each line. Every character keeps its place."""
    plain = re.sub(_ESCAPED_ENDS, lambda found: " " * (len(found[0]) - 1) + "\n", text)
    plain = re.sub(_CLOCK, lambda found: " " * len(found[0]), plain, flags=re.MULTILINE)
    plain = re.sub(_NEXT_ADDRESS, lambda found: " " * len(found[0]), plain)
    return plain.replace('\\"', ' "')


def is_stale_master(text: str) -> bool:
    """The shared connection was gone before it opened a session for us: nothing was executed."""
    return re.search(_STALE_MASTER, text) is not None


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


_MAKERS: dict[str, tuple[type[OrchError], str, str]] = {
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
    "bad_key_file": (
        AuthError,
        "ssh refused to use the private key file",
        "make it readable to you alone (chmod 600), or name another: `identity_file:` of {name}",
    ),
    "no_logins": (UnreachableError, "the host lets nobody in at the moment: it boots or shuts down", "wait for it"),
    "no_shell": (AuthError, "the account may not log in (its shell is nologin)", "name another `user:` of {name}"),
    "unreachable": (UnreachableError, "no connection could be made", "check address, port and firewall"),
    "account_expired": (AuthError, "the account, or its password, has expired", "renew it on the host"),
    "jump_failed": (
        UnreachableError,
        "the jump host is there and could not reach it",
        "check the name and the port as seen from the jump host",
    ),
    "ssh_missing": (UnreachableError, "there is no ssh program here", "install the OpenSSH client"),
    "lost": (UnreachableError, "the connection was lost before a command began", "try again"),
}


def way_out_of(kind: str, host: str | None) -> str:
    """For a failure of a host that is in no inventory: `host` as the text names it."""
    name = host or "HOST"
    if kind == "host_key_unknown":
        return "compare its key, then: orch trust NAME"
    if kind == "host_key_changed":
        return f"find out why; only if it is as it should be: ssh-keygen -R '{name}', then orch trust NAME"
    maker = _MAKERS.get(kind)
    return "" if maker is None else maker[2].format(login=f"ssh {name}", name=name)

"""ssh's words, as they come in the wild, lead to the right error."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import AuthError, HostKeyError, InventoryError, UnreachableError
from orchestrator.inventory.model import Host
from orchestrator.transport.failures import describe, failure_error, is_stale_master
from orchestrator.transport.ssh_settings import check_address, settings_text, ssh_argv

HOST = Host(
    name="gpu-box",
    address="10.1.2.6",
    transport="openssh",
    user="root",
    port=None,
    identity_file=None,
    ssh_config_file=None,
    known_hosts_file=None,
    connect_timeout_s=10,
    keepalive_interval_s=15,
    keepalive_count=3,
    become="none",
)
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ED25519 key sent by the remote host is
SHA256:JE+Fv4b8YJgBx/PQ0+I0/pEnGkiUommL0RPRXI3B7KI.
Offending ECDSA key in /root/.ssh/known_hosts:47
Host key for host.example has changed and you have requested strict checking.
Host key verification failed.
"""
CHANGED_ESCAPED = (
    r'UNREACHABLE! => {"msg": "Failed to connect to the host via ssh: @@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION '
    r"HAS CHANGED!     @\r\nThe fingerprint for the ECDSA key sent by the remote host is\nb1:f4:b1:e3:70:40:bf:0b:81:"
    r"6d:b5:4e:09:f2:cb:4e.\r\nOffending ECDSA key in /root/.ssh/known_hosts:1\r\n  remove with: ssh-keygen -f \"x\""
)
TEXTS = [
    (
        CHANGED,
        "host_key_changed",
        {
            "key_type": "ED25519",
            "fingerprint": "SHA256:JE+Fv4b8YJgBx/PQ0+I0/pEnGkiUommL0RPRXI3B7KI",
            "offending_type": "ECDSA",
            "known_hosts_file": "/root/.ssh/known_hosts",
            "line": "47",
            "host": "host.example",
        },
    ),
    (
        CHANGED_ESCAPED,
        "host_key_changed",
        {
            "key_type": "ECDSA",
            "fingerprint": "b1:f4:b1:e3:70:40:bf:0b:81:6d:b5:4e:09:f2:cb:4e",
            "offending_type": "ECDSA",
            "known_hosts_file": "/root/.ssh/known_hosts",
            "line": "1",
        },
    ),
    (
        "No ED25519 host key is known for [127.0.0.1]:2222 and you have requested strict checking.\r\n"
        "Host key verification failed.\r\n",
        "host_key_unknown",
        {"key_type": "ED25519", "host": "[127.0.0.1]:2222"},
    ),
    ("Host key verification failed.\r\n", "host_key_unknown", {}),
    (
        "debug1: kex_exchange_identification: banner line 0: Exceeded MaxStartups\n"
        "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 192.0.2.86 port 22\n",
        "server_throttled",
        {},
    ),
    (
        "Received disconnect from 127.0.0.1: 2: Too many authentication failures for docker\n",
        "auth_too_many_keys",
        {},
    ),
    (
        "Received disconnect from UNKNOWN port 65535:2: Too many authentication failures\n"
        "Disconnected from UNKNOWN port 65535\n",
        "auth_too_many_keys",
        {},
    ),
    (
        "(255, '', \"Warning: Permanently added '192.0.2.17' (ECDSA) to the list of known hosts.\\\\r\\\\n"
        'Permission denied (publickey,gssapi-keyex,gssapi-with-mic,password).\\\\r\\\\n")',
        "auth_denied",
        {"methods": "publickey,gssapi-keyex,gssapi-with-mic,password"},
    ),
    ("10:44:28  \n\n10:44:28  Permission denied (publickey).\n", "auth_denied", {"methods": "publickey"}),
    (
        "via ssh: unknown option -- -\\r\\nusage: ssh [-1246AaCfGaSdFNnqsTtVvXxYy] [-b bind_address]",
        "bad_target",
        {},
    ),
    ("ssh: connect to host 10.1.2.6 port 22: Connection refused\r\n", "refused", {}),
    ("ssh: connect to host 10.1.2.6 port 22: Connection timed out\r\n", "timed_out", {}),
    ("Connection timed out during banner exchange\nConnection to 10.1.2.6 port 22 timed out\n", "timed_out", {}),
    ("ssh: connect to host 10.1.2.6 port 22: No route to host\r\n", "no_route", {}),
    ("ssh: Could not resolve hostname nope: Name or service not known\r\n", "name_not_found", {}),
    (
        "Unable to negotiate with 10.1.2.6 port 22: no matching host key type found. Their offer: ssh-rsa\n",
        "no_common_algorithm",
        {},
    ),
    ("kex_exchange_identification: Connection closed by remote host\n", "closed_early", {}),
    ("/root/.ssh/config: line 3: Bad configuration option: fooo\n", "bad_settings", {}),
    ("Timeout, server 10.1.2.6 not responding.\r\n", "lost", {}),
    ("client_loop: send disconnect: Broken pipe\r\n", "lost", {}),
    ("", "unknown", {}),
    ("Welcome to gpu-box! Last login: today", "unknown", {}),
]


@pytest.mark.parametrize(("text", "kind", "facts"), TEXTS, ids=[f"{n}-{row[1]}" for n, row in enumerate(TEXTS)])
def test_the_cause_is_found_with_its_facts(text, kind, facts):
    found = describe(text)
    assert (found.kind, found.facts) == (kind, facts)


@pytest.mark.parametrize("seed", range(20))
def test_noise_around_the_words_changes_nothing(seed):
    chance = random.Random(seed)
    noise = ["Welcome!", "\x1b[1mmotd\x1b[0m", "12:00:01 load: 3", "Warning: Permanently added 'x' (ECDSA) ...", ""]
    for text, kind, _ in TEXTS:
        if kind != "unknown":
            around = "\n".join(chance.choices(noise, k=3))
            assert describe(f"{around}\n{text}\n{around}").kind == kind


@given(st.text())
def test_any_text_is_described(text):
    assert describe(text).kind
    is_stale_master(text)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("host_key_unknown", HostKeyError),
        ("host_key_changed", HostKeyError),
        ("host_key_revoked", HostKeyError),
        ("auth_denied", AuthError),
        ("auth_too_many_keys", AuthError),
        ("bad_target", InventoryError),
        ("bad_settings", InventoryError),
        ("refused", UnreachableError),
        ("timed_out", UnreachableError),
        ("server_throttled", UnreachableError),
        ("unknown", UnreachableError),
    ],
)
def test_each_cause_has_its_error_and_a_way_out(kind, expected):
    from orchestrator.transport.failures import SshFailure

    error = failure_error(SshFailure(kind), HOST, evidence="seen")
    assert type(error) is expected
    assert "10.1.2.6" in error.what and error.evidence == "seen"
    assert error.way_out and "{" not in error.way_out


def test_an_unknown_key_says_how_to_trust_it():
    assert failure_error(describe("Host key verification failed."), HOST).way_out == "orch trust gpu-box"


@pytest.mark.parametrize("address", ["", "-oProxyCommand=id", "---", "a b", "a\nb", "\x00"])
def test_an_address_that_ssh_would_misread_is_refused(address):
    from dataclasses import replace

    with pytest.raises(InventoryError):
        check_address(replace(HOST, address=address))


def test_the_policy_comes_before_the_users_own_settings():
    text = settings_text(HOST, home=Path("/home/me"), network="net:[1]")
    assert "StrictHostKeyChecking yes" in text and "BatchMode yes" in text
    assert text.index("StrictHostKeyChecking yes") < text.index('Include "/home/me/.ssh/config"')
    assert "UserKnownHostsFile" not in text and "User " not in text


def test_only_what_the_inventory_states_is_on_the_command_line():
    argv = ssh_argv(HOST, Path("/s"), control_path=None)
    assert argv[-4:] == ["-l", "root", "--", "10.1.2.6"]
    assert "-p" not in argv and "-i" not in argv


@pytest.mark.parametrize(
    "text",
    [
        "mux_client_hello_exchange: write packet: Broken pipe\r\n",
        "mux_client_request_session: read from master failed: Connection reset by peer\r\n",
    ],
)
def test_a_dead_shared_connection_is_recognised(text):
    assert is_stale_master(text)
    assert not is_stale_master("Connection reset by 10.1.2.6 port 22")


def test_the_same_address_in_another_network_is_another_machine():
    from dataclasses import replace

    texts = {settings_text(HOST, home=Path("/home/me"), network=network) for network in ("net:[1]", "net:[2]")}
    texts.add(settings_text(replace(HOST, identity_file=Path("/k")), home=Path("/home/me"), network="net:[1]"))
    assert len(texts) == 3

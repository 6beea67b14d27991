"""How both SSH clients get to a host, or refuse to: the same rules, the same words."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.container.target import open_host
from orchestrator.errors import (
    AuthError,
    HostKeyError,
    InventoryError,
    OrchError,
    OutcomeUnknownError,
    UnreachableError,
)
from orchestrator.transport.openssh import OpensshTransport
from orchestrator.transport.runtime_folder import runtime_folder
from orchestrator.transport.trust import fetch_host_key, remember_host_key
from tests.contract.places import Stage
from tests.contract.ssh_server import SSHD, keygen
from tests.waiting import until

pytestmark = pytest.mark.skipif(not Path(SSHD).exists(), reason="no OpenSSH server here")
CLIENTS = ["openssh", "asyncssh"]


@pytest.fixture
def stage(monkeypatch):
    stage = Stage()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(stage.folder))
    yield stage
    stage.end()


@pytest.fixture
def server(stage):
    server = stage.server()
    server.set_server("SetEnv SHLVL=3")
    return server


async def ask(host, *argv, timeout_s=30):
    transport = await open_host(host)
    try:
        return await transport.run(list(argv) or ["true"], timeout_s=timeout_s)
    finally:
        await transport.close()


async def both_fail(server, expected, **changes):
    """The error of each client; they must say the same."""
    errors = []
    for client in CLIENTS:
        with pytest.raises(expected) as caught:
            await ask(server.host(client, **changes))
        errors.append(caught.value)
    assert (errors[0].what, errors[0].way_out) == (errors[1].what, errors[1].way_out)
    assert all(error.evidence for error in errors)
    return errors[0]


async def test_an_unknown_host_key(server):
    server.known_hosts.write_text("")
    error = await both_fail(server, HostKeyError)
    assert error.way_out == "orch trust gpu-box"
    assert server.known_hosts.read_text() == ""


async def test_missing_known_hosts_is_no_permission(server):
    server.known_hosts.unlink()
    assert (await both_fail(server, HostKeyError)).way_out == "orch trust gpu-box"
    assert not server.known_hosts.exists()


async def test_known_hosts_none_in_ssh_config_is_no_permission(server):
    server.set_client("UserKnownHostsFile none", "StrictHostKeyChecking no")
    assert (await both_fail(server, HostKeyError)).way_out == "orch trust gpu-box"


async def test_a_changed_host_key(server):
    server.known_hosts.write_text(f"{server.alias} {server.public('client')}\n")
    error = await both_fail(server, HostKeyError)
    assert "ssh-keygen -R" in error.way_out and "not the one known" in error.what


async def test_a_revoked_host_key(server):
    key = server.public("host")
    server.known_hosts.write_text(f"{server.alias} {key}\n@revoked * {key}\n")
    assert "revoked" in (await both_fail(server, HostKeyError)).what


async def test_a_refused_login(server):
    server.authorize(server.public("host"))
    assert "login was refused" in (await both_fail(server, AuthError)).what


async def test_too_many_keys(server):
    names = [f"wrong{n}" for n in range(4)]
    for name in names:
        keygen("-t", "ed25519", "-N", "", "-f", server.folder / name)
    server.set_server("MaxAuthTries 3")
    server.set_client(*(f"IdentityFile {server.folder / name}" for name in names))
    assert "too many keys" in (await both_fail(server, AuthError)).what


async def test_a_login_whose_shell_refuses(server):
    server.set_server("ForceCommand echo 'This account is not available.'; exit 1")
    error = await both_fail(server, AuthError)
    assert "did not run the command (exit 1)" in error.what


async def test_nobody_listens(server):
    server.client_config.write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        error = await both_fail(server, UnreachableError, address="127.0.0.1", port=port)
    assert "refused" in error.what


async def test_nobody_answers(server):
    server.client_config.write_text("")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        error = await both_fail(server, UnreachableError, address="127.0.0.1", port=port, connect_timeout_s=1)
    assert "no answer in time" in error.what


async def test_a_server_that_hangs_up(server):
    server.proxy.write_text("#!/bin/sh\nexit 0\n")
    assert "hung up before the login" in (await both_fail(server, UnreachableError)).what


@pytest.mark.parametrize("client", CLIENTS)
async def test_settings_that_cannot_be_read(server, client):
    server.client_config.write_text("ConnectTimeout never\n")
    with pytest.raises(InventoryError):
        await ask(server.host(client))


async def test_an_address_like_an_option(server):
    await both_fail_before_anything(server, "-oProxyCommand=touch /tmp/x")


async def both_fail_before_anything(server, address):
    for client in CLIENTS:
        with pytest.raises(InventoryError):
            await open_host(server.host(client, address=address))
    assert server.alive() == []


@pytest.mark.parametrize("client", CLIENTS)
async def test_include_match_and_alias(server, client):
    part = server.folder / "part"
    part.write_text(server.client_config.read_text().replace("Host far", "Host *"))
    server.client_config.write_text(f"Host other\n  User nobody\nMatch originalhost far\n  Include {part}\n")
    assert (await ask(server.host(client), "echo", "in")).stdout == b"in\n"


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_inventory_comes_before_ssh_config(server, client):
    config = server.client_config
    config.write_text(config.read_text().replace("IdentityFile", "#").replace(str(server.known_hosts), "/nonexistent"))
    host = server.host(client, identity_file=server.folder / "client", known_hosts_file=server.known_hosts)
    assert (await ask(host)).exit_code == 0


@pytest.mark.parametrize("client", CLIENTS)
async def test_hashed_known_hosts(server, client):
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", server.known_hosts], check=True, capture_output=True)
    assert server.alias not in server.known_hosts.read_text()
    assert (await ask(server.host(client))).exit_code == 0


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_host_certificate(server, client):
    keygen("-t", "ed25519", "-N", "", "-f", server.folder / "ca")
    keygen("-s", server.folder / "ca", "-I", "host", "-h", "-n", server.alias, server.folder / "host.pub")
    server.set_server(f"HostCertificate {server.folder / 'host-cert.pub'}")
    server.known_hosts.write_text(f"@cert-authority {server.alias} {server.public('ca')}\n")
    assert (await ask(server.host(client))).exit_code == 0
    server.known_hosts.write_text(f"@cert-authority elsewhere {server.public('ca')}\n")
    with pytest.raises(HostKeyError):
        await ask(replace(server.host(client), keepalive_count=4))  # not over the connection that is still open


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_user_certificate(server, client):
    keygen("-t", "ed25519", "-N", "", "-f", server.folder / "ca")
    keygen("-s", server.folder / "ca", "-I", "me", "-n", "root,me", server.folder / "client.pub")
    server.authorize("# nobody")
    server.set_server(f"TrustedUserCAKeys {server.folder / 'ca.pub'}")
    server.set_client("User root", f"CertificateFile {server.folder / 'client-cert.pub'}")
    if os.getuid() != 0:
        pytest.skip("the certificate is for root")
    assert (await ask(server.host(client))).exit_code == 0


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_jump_host(stage, client):
    jump, server = jump_pair(stage)
    with Listening(server) as port:
        server.client_config.write_text(behind(jump, server, port))
        assert (await ask(server.host(client), "echo", "there")).stdout == b"there\n"
    assert jump.pids.iterdir()


async def test_a_jump_host_is_held_to_the_same_rules(stage):
    jump, server = jump_pair(stage)
    with Listening(server) as port:
        server.client_config.write_text(behind(jump, server, port) + "StrictHostKeyChecking no\n")
        jump.known_hosts.write_text("")
        error = await both_fail(server, HostKeyError)
    assert "jump host hop" in error.what and "orch trust" not in error.way_out


def jump_pair(stage):
    jump, server = stage.server("jump", alias="hop"), stage.server("behind")
    jump.set_server("SetEnv SHLVL=3", "AllowTcpForwarding yes")
    server.set_server("SetEnv SHLVL=3")
    return jump, server


def behind(jump, server, port):
    """The far server is reached through the jump host only."""
    lines = [line for line in server.client_config.read_text().splitlines() if "ProxyCommand" not in line]
    lines += ["  ProxyJump hop", "  HostName 127.0.0.1", f"  Port {port}", f"  HostKeyAlias {server.alias}"]
    return "\n".join([*lines, jump.client_config.read_text()])


class Listening:
    """For the one test that needs a port: each connection to it becomes a server of its own."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = __import__("threading").Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self.socket.getsockname()[1]

    def __exit__(self, *exc):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(5)
        for process in self.processes:
            process.kill()
            process.wait()

    def _serve(self):
        self.processes = []
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.processes.append(subprocess.Popen([self.server.proxy], stdin=connection, stdout=connection))


async def test_the_shared_connection_is_used_again_and_can_be_ended(server):
    host = server.host("openssh")
    for _ in range(3):
        await ask(host)
    assert len(server.alive()) == 1
    await OpensshTransport(host).end_shared_connection()
    await until(lambda: not server.alive())


async def test_a_shared_connection_that_died_is_replaced(server):
    host = server.host("openssh")
    await ask(host)
    server.signal_connections(signal.SIGKILL)
    assert (await ask(host)).exit_code == 0


async def test_a_shared_connection_that_hangs_is_replaced(server):
    host = server.host("openssh", keepalive_interval_s=1, keepalive_count=1)
    await ask(host)
    server.signal_connections(signal.SIGSTOP)
    assert (await ask(host)).exit_code == 0


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_cut_before_the_first_word_is_not_called_undone(server, client):
    server.set_server('ForceCommand echo begun >&2; sleep 30; eval "$SSH_ORIGINAL_COMMAND"')
    starting = asyncio.create_task(ask(server.host(client)))
    await until(server.alive)
    await asyncio.sleep(1)
    server.signal_connections(signal.SIGKILL)
    with pytest.raises(OutcomeUnknownError):
        await starting


async def test_closing_leaves_no_local_process(server):
    transport = await open_host(server.host("asyncssh"))
    await transport.run(["true"], timeout_s=20)
    assert server.alive()
    await transport.close()
    await until(lambda: not server.alive())


async def test_trust_shows_and_remembers_the_key_once(server):
    server.known_hosts.unlink()
    host = server.host("openssh")
    offered = await fetch_host_key(host)
    shown = subprocess.run(["ssh-keygen", "-lf", server.folder / "host.pub"], capture_output=True, text=True).stdout
    assert offered.fingerprint_sha256 == shown.split()[1] and not offered.already_known
    remember_host_key(offered)
    remember_host_key(offered)
    assert server.known_hosts.read_text() == f"{server.alias} {server.public('host')}\n"
    assert stat.S_IMODE(server.known_hosts.stat().st_mode) == 0o600
    assert (await fetch_host_key(host)).already_known
    for client in CLIENTS:
        assert (await ask(server.host(client))).exit_code == 0


async def test_trust_never_replaces_a_key(server):
    before = f"{server.alias} {server.public('client')}"
    server.known_hosts.write_text(before)
    offered = await fetch_host_key(server.host("openssh"))
    with pytest.raises(HostKeyError, match="was not replaced"):
        remember_host_key(offered)
    assert server.known_hosts.read_text() == before


def test_a_runtime_folder_that_others_can_enter_is_refused(stage):
    folder = runtime_folder()
    assert folder == stage.folder / "orch" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(OrchError, match="only you can enter"):
        runtime_folder()

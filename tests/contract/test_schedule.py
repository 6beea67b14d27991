"""orch schedule: tried in the timer's own environment, shown, written, listed, run, removed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.ssh_server import SSHD, SshServer
from tests.publishing import Trained
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[2]
PLAYBOOK = """\
target: box
steps:
  - launch:
    deadline: 1m
  - wait: {until: finished}
    deadline: 1m
  - evaluate:
  - gate: {to: PUBLISHED}
  - publish: {to: PUBLISHED}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trained = Trained(tmp_path_factory.mktemp("trained"))
    trained.playbook = trained.folder / "nightly.yaml"
    trained.playbook.write_text(PLAYBOOK.replace("PUBLISHED", str(trained.folder / "drafter")))
    return trained


class Shell:
    """Somebody's shell, with a home of its own."""

    def __init__(self, trained, folder):
        self.trained, self.folder = trained, folder
        self.units = folder / "config" / "systemd" / "user"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            **{f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "state", "cache")},
        }
        self.environment.pop("SSH_AUTH_SOCK", None)
        self.environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])

    def schedule(self, *words, **more):
        return subprocess.run(
            self.trained.argv("schedule", *map(str, words)),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def shell(trained, tmp_path):
    return Shell(trained, tmp_path)


def test_written_listed_run_and_removed(trained, shell):
    words = (trained.playbook, "--at", "02:00", "--tz", "Europe/Berlin", "--offline")
    asked = shell.schedule(*words)
    assert asked.returncode == 2 and "there is no terminal to ask on" in asked.stderr and not shell.units.exists()
    assert "OnCalendar=*-*-* 02:00:00 Europe/Berlin" in asked.stdout and "ExecStart=" in asked.stdout
    assert asked.stderr.count("  works: ") == 3  # the playbook, the target, where it publishes
    done = shell.schedule(*words, "--yes", "--unchecked")
    assert done.returncode == 0, done.stderr
    service = (shell.units / "orch-nightly.service").read_text()
    timer = (shell.units / "orch-nightly.timer").read_text()
    assert service.rstrip() in done.stdout and timer.rstrip() in done.stdout  # what was written is what was shown
    assert_systemd_finds_nothing_wrong(shell)
    link = shell.units / "timers.target.wants" / "orch-nightly.timer"
    assert link.resolve() == shell.units / "orch-nightly.timer"
    listed = shell.schedule("list").stdout
    assert "nightly" in listed and "02:00 Europe/Berlin" in listed and str(trained.playbook) in listed
    ran = shell.schedule("run-now", "nightly")
    assert ran.returncode == 0, ran.stderr
    assert (trained.folder / "drafter" / "current" / "model.safetensors").is_file()
    removed = shell.schedule("remove", "nightly")
    assert removed.returncode == 0 and not list(shell.units.rglob("orch-*"))
    assert shell.schedule("list").stdout.strip() == "nothing is scheduled"


def assert_systemd_finds_nothing_wrong(shell):
    if shutil.which("systemd-analyze"):
        files = [shell.units / f"orch-nightly.{kind}" for kind in ("service", "timer")]
        done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="there is a systemd here")
def test_without_systemd_a_line_for_cron(trained, shell):
    done = shell.schedule(trained.playbook, "--at", "Mon..Fri 02:05", "--tz", "Pacific/Chatham", "--unchecked")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("5 2 * * 1,2,3,4,5 cd ")
    assert "not Pacific/Chatham: change the hour" in done.stderr, "cron knows only the machine's zone"
    assert not shell.units.exists()


def test_another_playbook_of_the_same_name_is_not_replaced(trained, shell):
    words = ("--at", "02:00", "--tz", "UTC", "--offline", "--yes", "--unchecked")
    assert shell.schedule(trained.playbook, *words).returncode == 0
    other = shell.folder / "nightly.yaml"
    other.write_text(PLAYBOOK.replace("PUBLISHED", "/nowhere/x"))
    refused = shell.schedule(other, *words)
    assert refused.returncode == 2 and str(trained.playbook) in refused.stderr and "--name" in refused.stderr
    assert shell.schedule(trained.playbook, *words, "--if-missed", "skip").returncode == 0  # its own, anew
    assert "Persistent=false" in (shell.units / "orch-nightly.timer").read_text()


def test_a_secret_that_only_the_shell_has_is_missed_before_anything_is_written(trained, shell):
    playbook = shell.folder / "told.yaml"
    playbook.write_text("target: box\nsteps:\n  - notify: {webhook: 'env:HOOK'}\n")
    words = (playbook, "--at", "02:00", "--tz", "UTC", "--offline", "--yes")
    refused = shell.schedule(*words, HOOK="http://127.0.0.1/secret")
    assert refused.returncode == 10 and "the environment has no HOOK" in refused.stderr
    assert not shell.units.exists()
    secrets = shell.folder / "secrets"
    secrets.write_text("HOOK=http://127.0.0.1/s3cr3t\n")
    secrets.chmod(0o644)
    refused = shell.schedule(*words, "--env-file", secrets)
    assert refused.returncode == 10 and f"chmod 600 {secrets}" in refused.stderr
    secrets.chmod(0o600)
    done = shell.schedule(*words, "--env-file", secrets)
    assert done.returncode == 0, done.stderr
    written = (shell.units / "orch-told.service").read_text()
    assert f"EnvironmentFile={secrets}" in written and "s3cr3t" not in written + done.stdout + done.stderr


@pytest.mark.skipif(not Path(SSHD).exists(), reason="no sshd")
def test_a_login_that_only_an_agent_has_works_in_the_shell_and_not_in_the_timer(trained, shell):
    server = SshServer(shell.folder / "ssh")
    key = server.folder / "elsewhere"
    (server.folder / "client").rename(key)
    (server.folder / "client.pub").unlink()
    text = server.client_config.read_text().replace(
        f"IdentityFile {server.folder / 'client'}", "IdentityAgent SSH_AUTH_SOCK"
    )
    server.client_config.write_text(text.replace("IdentitiesOnly yes", "IdentitiesOnly no"))
    inventory = shell.folder / "inventory.yaml"
    inventory.write_text(
        f"hosts:\n  box: {{address: far, transport: openssh, ssh_config: {server.client_config},"
        f" root: {shell.folder}/root}}\n"
    )
    playbook = shell.folder / "look.yaml"
    playbook.write_text("target: box\nsteps:\n  - run: {argv: ['true'], repeatable: true}\n")
    socket = shell.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        eventually(socket.exists, "the agent listens")
        subprocess.run(["ssh-add", "-q", key], check=True, env={**os.environ, "SSH_AUTH_SOCK": str(socket)})
        in_shell = subprocess.run(
            [sys.executable, "-m", "orchestrator", "exec", "-i", inventory, "--", "true"],
            capture_output=True,
            text=True,
            check=False,
            env={**shell.environment, "SSH_AUTH_SOCK": str(socket)},
        )
        assert in_shell.returncode == 0, in_shell.stderr
        words = ("-i", inventory, playbook, "--at", "02:00", "--tz", "UTC", "--offline", "--yes")
        refused = shell.schedule(*words, SSH_AUTH_SOCK=str(socket))
        assert refused.returncode == 10, refused.stderr
        assert "DOES NOT WORK: box can be reached" in refused.stderr
        assert "the timer has none" in refused.stderr and "identity_file" in refused.stderr
        assert not shell.units.exists()
        done = shell.schedule(*words, "--ssh-auth-sock", socket)
        assert done.returncode == 0, done.stderr
    finally:
        agent.terminate()
        agent.wait(10)
        server.end()

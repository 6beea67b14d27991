"""pct's argv and pct's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.container import none, pct
from orchestrator.container.place import Place
from orchestrator.errors import AuthError, ContainerError

PLACE = Place("ct200", "ssh root@10.1.2.6", "root", "none", 200)
SUDO = Place("ct200", "ssh me@10.1.2.6", "me", "sudo", 200)

ATTACH_DENIED = """\
lxc-attach: cs50: ../src/lxc/cgroups/cgfsng.c: cgroup_attach_move_into_leaf: 2610 Permission denied - Failed to move \
process into target cgroup via fd 7 and 8
lxc-attach: cs50: ../src/lxc/conf.c: userns_exec_minimal: 5245 Permission denied - Running parent function failed
$ lxc-attach: cs50: ../src/lxc/attach.c: do_attach: 1238 No data available - Failed to receive lsm label fd
"""
TEXTS = [
    ("container '105' not running!\n", ("not_running", "105", None, None)),
    ("Error: container '105' not running!\n", ("not_running", "105", None, None)),
    (
        "+ pct start 101\nConfiguration file 'nodes/prox/lxc/101.conf' does not exist\n++ error_handler 422 exit code "
        "\\033[01;31m255\\033[m\n",
        ("missing", "101", "prox", None),
    ),
    (
        "unable to find configuration file for VM 119 on node 'pve-server'\n"
        "Configuration file 'nodes/pve-server/qemu-server/119.conf' does not exist\n",
        ("is_vm", "119", "pve-server", None),
    ),
    ("Configuration file 'nodes/pve/qemu-server/119.conf' does not exist", ("is_vm", "119", "pve", None)),
    ("HTTP/1.1 500 CT is locked (disk)\nConnection: close\n", ("locked", None, None, "disk")),
    ("CT is locked (snapshot-delete)\n", ("locked", None, None, "snapshot-delete")),
    ("CT is locked (mounted)\n", ("locked", None, None, "mounted")),
    (
        "trying to acquire lock...\ncan't lock file '/run/lock/lxc/pve-config-200.lock' - got timeout\n",
        ("lock_timeout", "200", None, None),
    ),
    ("lxc-attach: enter: attach.c: lxc_attach: 1095 Failed to get init pid\n", ("not_running", "enter", None, None)),
    (ATTACH_DENIED, ("attach_denied", "cs50", None, None)),
    ("please run as root\n", ("no_permission", None, None, None)),
    ("pct: 1: exec: pct: not found\n", ("pct_not_found", None, None, None)),
    ("Unknown option: keep-env\n400 unable to parse option\n", ("usage", None, None, None)),
    ("ipcc_send_rec[1] failed: Connection refused\n", ("cluster_down", None, None, None)),
    ("something else\n", ("unknown", None, None, None)),
]


@pytest.mark.parametrize(("text", "facts"), TEXTS, ids=[f"{n}-{row[1][0]}" for n, row in enumerate(TEXTS)])
def test_the_cause_is_found(text, facts):
    found = pct.describe(text)
    assert (found.kind, found.container, found.node, found.reason) == facts
    error = pct.start_error(PLACE, text, 255)
    assert isinstance(error, ContainerError) and error.way_out and "None" not in error.what


@given(st.text())
def test_any_text_is_described(text):
    assert pct.start_error(SUDO, text, 1).what


def test_a_stopped_container_names_the_command_that_starts_it():
    error = pct.start_error(PLACE, "container '200' not running!", 255)
    assert error.way_out == "ssh root@10.1.2.6 pct start 200"
    assert pct.start_error(SUDO, "container '200' not running!", 255).way_out == ("ssh me@10.1.2.6 sudo pct start 200")


def test_one_known_environment_inside():
    argv = pct.start_argv(PLACE, ["a b", "-x"])
    assert argv[3:8] == ["pct", "pct", "exec", "200", "--"]
    assert argv[8:10] == ["/usr/bin/env", "-i"] and argv[-2:] == ["a b", "-x"]
    assert pct.start_argv(SUDO, ["x"])[4:8] == ["sudo", "-n", "--", "pct"]


def test_a_terminal_keeps_its_type():
    argv = pct.interactive_argv(PLACE, ["bash"], term="screen")
    assert "TERM=screen" in argv and "-i" not in argv and argv[-1] == "bash"


@pytest.mark.parametrize(
    ("text", "cause", "line"),
    [
        ("sudo: a password is required\n", "wants a password", "me ALL=(root) NOPASSWD: /usr/sbin/pct"),
        ("sudo: sorry, you must have a tty to run sudo\n", "terminal", "Defaults:me !requiretty"),
        (
            "Sorry, user me is not allowed to execute '/usr/sbin/pct exec 200 -- true' as root on gpu-box.\n",
            "does not allow this",
            "me ALL=(root) NOPASSWD: /usr/sbin/pct",
        ),
        ("me is not in the sudoers file.\n", "does not allow", "me ALL=(root) NOPASSWD: /usr/sbin/pct"),
        ("sudo: ein Passwort ist notwendig\n", "failed", "me ALL=(root) NOPASSWD: /usr/sbin/pct"),
    ],
)
def test_sudo_that_refuses_names_the_line_to_write(text, cause, line):
    error = pct.start_error(SUDO, text, 1)
    assert isinstance(error, AuthError)
    assert cause in error.what and error.way_out.endswith(line)


def test_sudo_on_the_host_itself():
    place = Place("box", "ssh me@box", "me", "sudo", None)
    assert none.start_argv(place, ["id", "-u"]) == ["sudo", "-n", "--", "id", "-u"]
    assert none.start_error(place, "sudo: a password is required", 1).way_out.endswith("NOPASSWD: ALL")


def test_a_missing_pct_below_sudo_is_not_sudos_refusal():
    error = pct.start_error(SUDO, "sudo: pct: command not found\n", 1)
    assert isinstance(error, ContainerError) and "no `pct`" in error.what

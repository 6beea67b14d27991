"""Proxmox's `pct`: argv in, cause of failure out. PURE.

Rule: pct's exit code is never read (it is an errno by accident, and 255 collides with ssh's); only its text is,
and only while the started-marker has not come from inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from orchestrator.container import sudo
from orchestrator.container.place import Place
from orchestrator.errors import ContainerError, OrchError

if TYPE_CHECKING:
    from orchestrator.transport.signs import Told

CONTAINER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A login that is not root's may lack /usr/sbin, where pct lives. C: its text is read.
_ON_HOST = ("/bin/sh", "-c", 'PATH=$PATH:/usr/sbin:/sbin LC_ALL=C; export PATH LC_ALL; exec "$@"', "pct")

Kind = Literal[
    "not_running",
    "missing",
    "is_vm",
    "locked",
    "lock_timeout",
    "no_permission",
    "attach_denied",
    "pct_not_found",
    "usage",
    "cluster_down",
    "command_not_started",
    "already_running",
    "start_failed",
    "storage_failed",
    "device_missing",
    "is_template",
    "unknown",
]


@dataclass(frozen=True)
class PctFailure:
    kind: str
    """One of `Kind`."""
    container: str | None = None
    """Id or name, as the text has it."""
    node: str | None = None
    reason: str | None = None
    """Of a lock: backup, snapshot, disk, ...; of a failed start: the row that names it."""


# The first that is found decides: the row that names the cause comes before those that follow from it.
_WORDS: tuple[tuple[Kind, str], ...] = (
    ("is_vm", r"unable to find configuration file for VM (?P<container>\d+) on node '(?P<node>[^']+)'"),
    ("is_vm", r"Configuration file 'nodes/(?P<node>[^/']+)/qemu-server/(?P<container>\d+)\.conf' does not exist"),
    ("missing", r"Configuration file 'nodes/(?P<node>[^/']+)/lxc/(?P<container>\d+)\.conf' does not exist"),
    (
        "missing",
        r"(?:CT|[Cc]ontainer) '?(?P<container>\d+)'? (?:does not exist|not found)|[Nn]o such (?:CT|container)|"
        r"unable to find configuration file for CT (?P<container2>\d+)|[Ii]nstance not found|"
        r"lxc-\w{1,12}: (?P<container3>[\w-]+): [^\n]*doesn't exist",
    ),
    (
        "already_running",
        r"(?:CT|[Cc]ontainer) '?(?P<container>\d+)'? (?:is )?already running|"
        r"lxc-start[^\n]*Container is already running",
    ),
    ("not_running", r"(?:[Cc]ontainer|CT) '?(?P<container>[\w-]+)'? (?:is )?not running|[Ii]nstance is not running"),
    ("locked", r"(?:CT|VM) is locked \((?P<reason>[\w-]+)\)"),
    ("lock_timeout", r"can't lock file '[^']*pve-config-(?P<container>\d+)\.lock'|can't lock file .{0,200}got timeout"),
    (
        "cluster_down",
        r"unable to open file '/etc/pve[^'\n]{0,200}' - (?P<reason>Device or resource busy|Input/output error|"
        r"Transport endpoint is not connected)|Unable to load access control list",
    ),
    (
        "no_permission",
        r"please run as root|Permission check failed|unable to open file '/etc/pve|EACCES.{0,40}/etc/pve",
    ),
    ("cluster_down", r"ipcc_send_rec|cluster not ready|no quorum|Transport endpoint is not connected"),
    (
        "attach_denied",
        r"lxc-attach(?:: (?P<container>[\w-]+):| (?P<container2>[\w-]+) \d{14}\.\d+ ERROR) "
        r"(?![^\n]*Failed to exec)[^\n]*(?:Permission denied|Operation not permitted)",
    ),
    ("not_running", r"lxc-attach: (?P<container>[\w-]+): [^\n]*[Ff]ailed to get init pi"),
    ("not_running", r"lxc-attach: (?P<container>[\w-]+): [^\n]*Connection refused"),
    ("not_running", r"unable to get PID for CT (?P<container>\d+)"),
    ("is_template", r"can't start a CT if it's a template"),
    ("device_missing", r"[Dd]evice (?P<device>/dev/\S{1,200}) does not exist"),
    (
        "attach_denied",
        r"lxc-attach(?:: (?P<container>[\w-]+):)? "
        r"[^\n]*(?:AppArmor|SELinux|cgroup_attach|Failed to attach to \w+ namespace|Failed to attach to container|"
        r"Failed to receive lsm label)",
    ),
    (
        "start_failed",
        r"(?P<reason>unsupported [\w ]{1,30} version '[^'\n]{1,40}'|unable to detect OS distribution|"
        r"bridge '[^'\n]{1,40}' does not exist|directory '[^'\n]{1,200}' does not exist|"
        r"wrong fs type, bad option, bad superblock on [^\s,]{1,120}|Failed initializing cgroup support|"
        r"[A-Z][a-z ]{4,40} - Failed to mount \"[^\"\n]{1,200}\")"
        r"(?=[\s\S]{0,1500}(?:Failed to (?:run lxc\.hook|initialize |spawn )|startup for container ))",
    ),
    (
        "start_failed",
        r"startup for container '(?P<container>\d+)' failed|[Tt]he container failed to start|"
        r"Failed to (?:spawn|setup|initialize) container \"(?P<container5>[\w-]+)\"|"
        r"Failed to run lxc\.hook\.pre-start for container \"(?P<container2>[\w-]+)\"|"
        r"Failed to receive the container state|Job for pve-container@(?P<container3>\d+)\.service failed|"
        r"systemctl start pve-container@(?P<container4>\d+)' failed",
    ),
    ("command_not_started", r"lxc-attach: (?P<container>[\w-]+): [^\n]*(?:No such file or directory|Failed to exec)"),
    ("storage_failed", r"lxc-attach: (?:(?P<container>[\w-]+): )?[^\n]*Input/output error"),
    (
        "storage_failed",
        r"(?:volume|dataset|cannot open) '[^'\n]{0,200}(?:subvol|vm)-(?P<container>\d+)-disk-\d+[^'\n]{0,40}'"
        r"[^\n]{0,40}does not exist"
        r"|storage '[^'\n]{1,80}' (?:does not exist|is not (?:online|available|active)[^\n]{0,80})"
        r"|cannot open directory /[^\n]{0,200}(?:subvol|vm)-(?P<container2>\d+)-disk-\d+[^\n]{0,40}: No such file"
        r"|Failed to find logical volume \"[^\"\n]{0,200}(?:subvol|vm)-(?P<container3>\d+)-disk-\d+"
        r"|lvcreate '[^'\n]{0,200}(?:subvol|vm)-(?P<container4>\d+)-disk-\d+[^'\n]{0,40}' error: [^\n]{1,200}"
        r"|free space in thin pool [^\n]{1,120} reached threshold",
    ),
    (
        "locked",  # as `pct list` and `pct config` show it
        r"^(?P<container>\d{3,9}) +(?:running|stopped) +"
        r"(?P<reason>backup|create|destroyed|disk|fstrim|migrate|mounted|rollback|snapshot(?:-delete)?) +\S"
        r"|^lock: (?P<reason2>[a-z-]{1,20})$"
        r"(?:(?=[\s\S]{0,4000}^rootfs: [^\n]{0,200}(?:subvol|vm)-(?P<container2>\d{3,9})-disk))?",
    ),
    ("not_running", r"^status: stopped$"),
    ("command_not_started", r"(?:lxc-attach|lxc_container): (?:[^\n]{0,200}- )?[Ff]ailed to exec"),
    ("command_not_started", r"/usr/bin/env: |env: .{0,20}/bin/sh"),
    ("pct_not_found", r"pct: (?:command )?not found|pct: No such file"),
    ("usage", r"^USAGE: pct|^ERROR: unknown command|^400 |unable to parse option|Unknown option: "),
)
_SUBJECTS = (
    r"lxc-(?:attach|start): (?P<container>[\w-]+): |pct [a-z]{1,12} (?P<container2>\d{1,9})\b|"
    r"nodes/(?P<node>[^/'\n]{1,64})/(?:lxc|qemu-server)/(?P<container3>\d{1,9})\.conf|"
    r"(?:CT|VM|[Cc]ontainer) '?(?P<container4>\d{1,9})\b|pve-container@(?P<container5>\d{1,9})|"
    r"(?:Failed to (?:spawn|setup|initialize)|pre-start for) container \"(?P<container6>[\w-]+)\""
)


@cache
def _signs() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Compiled when pct has failed: a command that works does not wait for them."""
    return tuple((kind, re.compile(pattern, re.MULTILINE)) for kind, pattern in _WORDS)


def start_argv(place: Place, argv: Sequence[str]) -> list[str]:
    """On the host: argv inside the container, in one known environment, through one `pct` start."""
    inside = ["/usr/bin/env", "-i", "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8"]
    inside += [f"PATH={CONTAINER_PATH}", "TERM=dumb"]
    return [*_ON_HOST, *_pct_exec(place), *inside, *argv]


def interactive_argv(place: Place, argv: Sequence[str], *, term: str) -> list[str]:
    """As `start_argv` on a terminal: pct's own environment, with what a terminal program needs."""
    inside = ["/usr/bin/env", "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8"]
    return [*_ON_HOST, *_pct_exec(place), *inside, f"PATH={CONTAINER_PATH}", f"TERM={term}", *argv]


def describe(text: str) -> PctFailure:
    """The cause that the text of pct, or of lxc-attach below it, names."""
    for kind, pattern in _signs():
        found = pattern.search(text)
        if found is not None:
            groups = {name.rstrip("0123456789"): value for name, value in found.groupdict().items() if value}
            return PctFailure(kind, groups.get("container"), groups.get("node"), groups.get("reason"))
    return PctFailure("unknown")


def read_pct_failures(text: str) -> tuple[Told, ...]:
    """Every failure that a text tells of: of one container after the other, of one after another reason."""
    from orchestrator.transport.signs import read_failures  # `orch read` only

    return read_failures(text, _signs(), re.compile(_SUBJECTS))


def way_out_of(failure: PctFailure) -> str:
    """On the host itself, for the container that the text names."""
    return _told(failure.container or "ID", lambda command: command, failure)[1]


def start_error(place: Place, stderr: str, exit_code: int) -> OrchError:
    """The error to raise when nothing began inside the container."""
    if place.become == "sudo":
        refused = sudo.sudo_refusal(stderr, label=place.label, user=place.user, program="/usr/sbin/pct")
        if refused is not None:
            return refused
    sentence, way_out = _told(str(place.container_id), place.typed, describe(stderr))
    return ContainerError(f"{place.label}: {sentence}", evidence=stderr or f"exit code {exit_code}", way_out=way_out)


def _pct_exec(place: Place) -> list[str]:
    words = list(sudo.WORDS) if place.become == "sudo" else []
    return [*words, "pct", "exec", str(place.container_id), "--"]


def _told(number: str, typed: Callable[[str], str], failure: PctFailure) -> tuple[str, str]:
    """Sentence and way out. typed: the command line that runs a command on the host."""
    on_node = f" on node {failure.node}" if failure.node else ""
    look = typed(f"pct status {number}")
    texts: dict[str, tuple[str, str]] = {
        "not_running": (f"container {number} is not running", typed(f"pct start {number}")),
        "missing": (
            f"container {number} does not exist{on_node}: wrong id, or it moved to another node",
            typed("pct list") + "; which node has it: " + typed("pvesh get /cluster/resources --type vm"),
        ),
        "is_vm": (f"{number} is looked up as a virtual machine{on_node}, not as a container", typed("qm list")),
        "locked": (
            f"container {number} is locked ({failure.reason})",
            f"wait for that task to end; look: {look}; if no task runs, the lock was left behind: "
            + typed(f"pct unlock {number}"),
        ),
        "already_running": (f"container {number} runs already", look),
        "storage_failed": (
            f"the disk of container {number} cannot be read",
            typed("dmesg") + "; is the storage full (lvs, zpool list) or failing?",
        ),
        "start_failed": (
            f"container {number} could not be started",
            typed(f"pct start {number} --debug"),
        ),
        "lock_timeout": (f"container {number} is held by another task of the host", f"try again later; look: {look}"),
        "no_permission": (
            "this login may not use pct",
            "log in as root, or set `become: sudo` for the host in the inventory",
        ),
        "attach_denied": (
            f"the host may not enter container {number}",
            f"look at the evidence, then: {typed(f'pct exec {number} -- true')}",
        ),
        "device_missing": (
            f"container {number} could not be started: a device that it is given does not exist on the host",
            f"{typed('nvidia-smi')} (it makes /dev/nvidia*); see dev0: ... in {typed(f'pct config {number}')}",
        ),
        "is_template": (f"container {number} is a template, which cannot run", typed("pct list")),
        "pct_not_found": ("there is no `pct` on the host: is it a Proxmox node?", typed("pveversion")),
        "usage": ("pct did not understand the call", typed("pveversion")),
        "cluster_down": ("the host's cluster file system (pmxcfs) does not answer", typed("pvecm status")),
        "command_not_started": (f"container {number} has no usable /usr/bin/env or /bin/sh", look),
        "unknown": (f"nothing could be started in container {number}", typed(f"pct exec {number} -- true")),
    }
    return texts.get(failure.kind, texts["unknown"])

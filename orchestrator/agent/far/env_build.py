"""Op env_build: makes an environment in its final place with the uv that was sent along, offline. Needs the lease.

Rule: until complete.json is written, last of all and after everything else is on disk, nothing takes the folder for an
environment; the next build takes away what one that was cut short left behind, its processes first.

    envs/<name>/       the environment
    envs/.building/    uv itself, its cache and what it writes for a moment: gone before complete.json comes
"""

from __future__ import annotations

import glob
import os
import re
import signal
import time
import zipfile
import zlib

from . import journal, lease, process
from .blobs import NO_SPACE, remove_quietly
from .channel import Channel
from .commands import run_command
from .durable import sync_file_system
from .env_store import BUILDING, COMPLETE, SCHEMA, STORE, WHEELS, names, path_of, read_complete, write_json
from .errors import OpError
from .files import free_space, remove_below
from .manifest import FILE, Entry, ManifestError
from .release_store import INCOMING, read_record, record_path
from .scan import hash_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

MARK = "ORCH_ENVIRONMENT_BUILD"
"""In the environment of uv and of what it starts: what an agent that was killed left running is found by it."""
LEFTOVERS_END_S = 10.0
VENV_LIMIT_S = 120.0
BLOCK_BYTES = 4096
OFFLINE = ("--offline", "--no-config", "--no-progress", "--color", "never")


def env_build(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, id, tree (of the wheels), python (the interpreter it is made with), requirements ({name: version}, what
    it must then hold, no more and no less), about (kept in complete.json), limit_s.

    Event {"phase": "unpack" | "make" | "install" | "sync"}. {"complete": complete.json, "already_there"}.
    Raises OpError: no_lease, busy, conflict, missing, build_failed, spoiled (the wheels), disk_full, io.
    """
    base, name = params["base"], params["id"]
    lease.require(base)
    there = read_complete(base, name)
    if there is not None:
        return {"complete": there, "already_there": True}
    build = _Build(base, name, params, channel)
    try:
        os.makedirs(os.path.join(base, STORE), exist_ok=True)
        detail = {"environment": name, "purpose": (params.get("about") or {}).get("purpose")}
        with journal.begin(base, "env-build", None, detail):
            try:
                complete = build.run()
            except BaseException as error:
                build.take_away()
                if isinstance(error, OpError) and error.kind in ("build_failed", "missing"):
                    build.forget_spoiled_wheels(error)
                raise
    except OSError as error:
        if error.errno in NO_SPACE:
            raise OpError("disk_full", "no space left below %s; the build was undone" % base, str(error)) from error
        raise OpError("io", "%s: %s" % (base, error)) from error
    return {"complete": complete, "already_there": False}


def end_leftovers(store: str) -> None:
    """What a killed agent's build left running: it would go on writing. Raises OpError("busy")."""
    until = time.monotonic() + LEFTOVERS_END_S
    while True:
        found = process.processes_with(MARK, store)
        if not found:
            return
        if time.monotonic() > until:
            raise OpError("busy", "a build that was cut short cannot be ended", "pid %d" % found[0].pid)
        for stat in found:
            process.send_signal_to(stat, signal.SIGKILL)
        time.sleep(0.02)


def sweep(base: str) -> None:
    """What builds and removals that were cut short left behind. Needs the lease, and no leftovers."""
    store = os.path.join(base, STORE)
    remove_below(store, os.path.join(store, BUILDING))
    for name in names(base):
        # One whose record is there and cannot be read was whole once: a run may be using it.
        if not os.path.lexists(os.path.join(store, name, COMPLETE)):
            remove_below(store, os.path.join(store, name))


class _Build:
    def __init__(self, base: str, name: str, params: Dict[str, Any], channel: Channel) -> None:
        self._base = base
        self._name = name
        self._params = params
        self._channel = channel
        self._store = os.path.join(base, STORE)
        self._building = os.path.join(self._store, BUILDING)
        self._tree = os.path.join(base, WHEELS, str(params["tree"]))
        self._path = path_of(base, name)
        self._uv = os.path.join(self._building, "uv")

    def run(self) -> Dict[str, Any]:
        began = time.monotonic()
        end_leftovers(self._store)
        sweep(self._base)
        if os.path.lexists(self._path):
            raise OpError("conflict", "%s has a %s that cannot be read: move it aside" % (self._path, COMPLETE))
        self._phase("unpack")
        for folder in ("", "home", "tmp"):
            os.mkdir(os.path.join(self._building, folder))
        self._unpack_uv()
        self._check_space()
        self._phase("make")
        self._ask_uv(VENV_LIMIT_S, "venv", self._path, "--python", self._params["python"], "--no-project",
                     "--no-python-downloads")  # fmt: skip
        self._phase("install")
        self._ask_uv(
            float(self._params["limit_s"]), "pip", "sync", os.path.join(self._tree, "lock.txt"),
            "--python", os.path.join(self._path, "bin", "python"), "--require-hashes", "--no-index",
            "--find-links", os.path.join(self._tree, "wheels"), "--link-mode", "hardlink", "--compile-bytecode",
        )  # fmt: skip
        self._compare()
        remove_quietly(self._building)  # before: once it is complete, nobody need clean up behind it
        self._phase("sync")
        size_bytes, files = _measure(self._path)
        sync_file_system(self._store)
        complete = dict(self._params.get("about") or {})
        complete.update(
            schema=SCHEMA,
            id=self._name,
            path=self._path,
            python=os.path.join(self._path, "bin", "python"),
            base_python=self._params["python"],
            requirements=self._params["requirements"],
            wheels=self._params["tree"],
            built_at=time.time(),
            took_s=round(time.monotonic() - began, 3),
            bytes=size_bytes,
            files=files,
        )
        self._channel.check()
        write_json(os.path.join(self._path, COMPLETE), complete)
        return complete

    def take_away(self) -> None:
        """After a failure: what is not whole only takes space. The next build would do it, too."""
        if not os.path.exists(os.path.join(self._path, COMPLETE)):
            remove_quietly(self._path)
        remove_quietly(self._building)

    def forget_spoiled_wheels(self, error: OpError) -> None:
        """Why it failed may be that what was sent is no longer so on this disk: then it must be sent again, which a
        tree that is there would prevent. Raises OpError("spoiled")."""
        try:
            entries = read_record(self._tree)[1]
        except OpError:
            return
        files = [entry for entry in entries if entry.kind == FILE]
        wrong = [entry.path for entry in files if not self._is_as_sent(entry)]
        if wrong:
            os.unlink(record_path(self._tree))
            # The rest is left where a push that was cut leaves what has come: it need not travel again.
            blobs = os.path.join(os.path.dirname(self._tree), INCOMING, "blobs")
            os.makedirs(blobs, exist_ok=True)
            for entry in files:
                if entry.path not in wrong:
                    os.replace(os.path.join(self._tree, entry.path), os.path.join(blobs, entry.sha256))
            remove_quietly(self._tree)
            text = "%s: %d files are no longer what was sent; they were taken away" % (self._tree, len(wrong))
            raise OpError("spoiled", text, "\n".join([*wrong[:20], str(error)])) from error

    def _is_as_sent(self, entry: Entry) -> bool:
        try:
            return hash_file(os.path.join(self._tree, entry.path), check=self._channel.check)[0] == entry.sha256
        except (OSError, ManifestError):
            return False

    def _phase(self, name: str) -> None:
        self._channel.check()
        self._channel.emit({"phase": name})

    def _unpack_uv(self) -> None:
        """A wheel is a zip file, and this one holds a program that needs nothing else."""
        found = glob.glob(os.path.join(glob.escape(self._tree), "uv", "*.whl"))
        if len(found) != 1:
            raise OpError("missing", "%s does not hold uv" % self._tree)
        try:
            with zipfile.ZipFile(found[0]) as wheel:
                inner = [name for name in wheel.namelist() if re.fullmatch(r"uv-[^/]+\.data/scripts/uv", name)]
                program = wheel.read(inner[0])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, IndexError, KeyError) as error:
            raise OpError("missing", "%s is not a wheel of uv" % found[0], str(error)) from error
        with open(self._uv, "wb") as stream:
            stream.write(program)
        os.chmod(self._uv, 0o755)

    def _check_space(self) -> None:
        """Before anything is installed: a full disk is every run's trouble. Bytecode takes about what its sources do.

        Of torch and 70 more packages, 1.51 GB by this count, the environment took 1.58 GB."""
        need = 0
        for path in glob.glob(os.path.join(glob.escape(self._tree), "wheels", "*.whl")):
            try:
                with zipfile.ZipFile(path) as wheel:
                    for inner in wheel.infolist():
                        blocks = -(-inner.file_size // BLOCK_BYTES) * BLOCK_BYTES
                        need += 2 * blocks if inner.filename.endswith(".py") else blocks
            except zipfile.BadZipFile as error:
                raise OpError("build_failed", "%s is not a wheel" % path, str(error)) from error
        have = free_space(self._store)["bytes_free"] or 0
        need += need // 10
        if need > have:
            text = "about %d bytes are needed, %d are free" % (need, have)
            raise OpError("disk_full", "not enough space below %s; nothing was built" % self._store, text)

    def _ask_uv(self, limit_s: float, *words: str) -> None:
        """With an environment of its own: no setting of this login or machine changes what is built. Nice: a training
        may be running beside it, and compiling takes every core."""
        mark = "%s=%s" % (MARK, self._store)
        environment = [
            mark,
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8",
            "HOME=" + os.path.join(self._building, "home"),
            "TMPDIR=" + os.path.join(self._building, "tmp"),
        ]
        argv = ["nice", "-n", "19", "env", "-i", *environment, self._uv, *words, *OFFLINE]
        argv += ["--cache-dir", os.path.join(self._building, "cache")]
        command = {"argv": argv, "timeout_s": limit_s, "environment": {MARK: self._store}}
        result = run_command(command, self._channel.cancelled)
        self._channel.check()
        if result["timed_out"]:
            raise OpError("build_failed", "uv %s did not end within %g s" % (words[0], limit_s), result["stderr"])
        if result["exit_code"] != 0:
            said = (result["stderr"] + result["stdout"]).strip()
            kind = "disk_full" if "os error 28" in said or "os error 122" in said else "build_failed"
            raise OpError(kind, "uv %s ended with exit code %s" % (" ".join(words[:2]), result["exit_code"]), said)

    def _compare(self) -> None:
        """What is there now against what was to be there."""
        from .packages import packages  # only a build that came to its end needs it

        folders = glob.glob(os.path.join(glob.escape(self._path), "lib", "python*", "site-packages"))
        there = packages(folders)
        wanted = self._params["requirements"]
        told = {(name, _plain_version(version)) for name, version in there.items()}
        wrong = sorted(told ^ {(name, _plain_version(version)) for name, version in wanted.items()})
        if wrong:
            evidence = "\n".join("%s %s" % pair for pair in wrong)
            raise OpError("build_failed", "what was installed is not what the lock says", evidence)


def _plain_version(version: str) -> str:
    """`2022.07.01` is `2022.7.1`, `1.0.0` is `1`: wheels and locks spell them differently."""
    release, plus, local = version.lower().partition("+")
    return (
        re.sub(r"(\.0)+$", "", re.sub(r"(^|\.)0+(?=\d)", r"\1", release))
        + plus
        + local.replace("-", ".").replace("_", ".")
    )


def _measure(path: str) -> tuple[int, int]:
    """Bytes on disk, and files."""
    size_bytes = files = 0
    for top, _, inner in os.walk(path):
        for name in inner:
            size_bytes += os.lstat(os.path.join(top, name)).st_blocks * 512
            files += 1
    return size_bytes, files

"""A virtual environment made file by file: real enough for its interpreter to import from, wrong in just one place."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.agent.far import env_look
from orchestrator.agent.far.channel import Channel
from orchestrator.probes.environment import EnvironmentFacts, Expectation, parse_look
from orchestrator.probes.environment_check import find_wrong
from orchestrator.probes.environment_finding import EnvironmentFinding
from tests.tiny_elf import shared_object

LONG_AGO = 1_700_000_000
BRINGS = {
    "libcudnn.so.9": ("nvidia-cudnn-cu12", "9.10.2.21", "nvidia/cudnn/lib"),
    "libcusparseLt.so.0": ("nvidia-cusparselt-cu12", "0.7.1", "nvidia/cusparselt/lib"),
    "libnccl.so.2": ("nvidia-nccl-cu12", "2.27.5", "nvidia/nccl/lib"),
    "libcudart.so.12": ("nvidia-cuda-runtime-cu12", "12.8.90", "nvidia/cuda_runtime/lib"),
}
TORCH = """\
import ctypes, os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"))
"""


class MadeVenv:
    def __init__(self, prefix: Path, version: str = "") -> None:
        self.prefix = prefix
        self.version = version or ".".join(map(str, sys.version_info[:3]))
        short = "python" + ".".join(self.version.split(".")[:2])
        self.site = prefix / "lib" / short / "site-packages"
        self.site.mkdir(parents=True)
        (prefix / "bin").mkdir()
        self.python = prefix / "bin" / "python"
        self.python.symlink_to(os.path.realpath(sys.executable))
        self.config(f"version = {self.version}\n")

    def config(self, more: str) -> None:
        home = os.path.dirname(os.path.realpath(sys.executable))
        (self.prefix / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n{more}")

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        requires: Sequence[str] = (),
        tag: str = "py3-none-any",
        installer: str = "pip",
        site: Path | None = None,
    ) -> Path:
        """As an installer leaves it, RECORD last. Returns its .dist-info."""
        module = re.sub(r"[-.]+", "_", name)
        info = f"{module}-{version}.dist-info"
        contents: dict[str, str | bytes] = dict(files if files is not None else {f"{module}/__init__.py": "X = 1\n"})
        lines = [f"Requires-Dist: {line}\n" for line in requires]
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        contents[f"{info}/METADATA"] = head + "".join(lines) + "\nA text: with a colon\n"
        contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
        contents[f"{info}/INSTALLER"] = f"{installer}\n"
        rows = []
        folder = site or self.site
        for inner, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            path = folder / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (LONG_AGO, LONG_AGO))
            rows.append(f"{inner},sha256={_digest(data)},{len(data)}\n")
        rows += [f"{module}/__pycache__/__init__.cpython-312.pyc,,\n", f"{info}/RECORD,,\n"]
        (folder / info / "RECORD").write_text("".join(rows))
        os.utime(folder / info / "RECORD", (LONG_AGO, LONG_AGO))
        return folder / info

    def uninstall(self, info: Path) -> None:
        """As pip does: everything that its RECORD names, whoever else names it too."""
        for row in (info / "RECORD").read_text().splitlines():
            (info.parent / row.split(",")[0]).unlink(missing_ok=True)
        (info / "RECORD").unlink(missing_ok=True)
        info.rmdir()

    def install_torch(self, build: str = "cu128") -> None:
        """A torch for CUDA 12.8 that loads four libraries, and the packages that bring them."""
        origins = ":".join(f"$ORIGIN/../../{folder}" for _, _, folder in BRINGS.values())
        library = shared_object([*BRINGS, "libc.so.6"], soname="libtorch_cuda.so", rpath=f"{origins}:$ORIGIN")
        requires = [f"{name}=={version} ; platform_system == 'Linux'" for name, version, _ in BRINGS.values()]
        self.install(
            "torch",
            f"2.11.0+{build}",
            {
                "torch/__init__.py": TORCH,
                "torch/version.py": f"__version__ = '2.11.0+{build}'\ncuda = '12.8'\n",
                "torch/lib/libtorch_cuda.so": library,
            },
            requires=[*requires, "filelock", "nvidia-cudnn-cu13==9.15.1.9 ; platform_system == 'Windows'"],
        )
        self.install("filelock", "3.13.1")
        for soname, (name, version, folder) in BRINGS.items():
            self.install(name, version, {f"{folder}/{soname}": shared_object(["libc.so.6"], soname=soname)})

    def look(self, mode: str = "all", **params: object) -> EnvironmentFacts:
        channel = Channel(1, lambda header, body: None)
        return parse_look(env_look.env_look({"python": str(self.python), "mode": mode, **params}, b"", channel))

    def wrong(
        self, expected: Expectation | None = None, mode: str = "all", **params: object
    ) -> dict[str, EnvironmentFinding]:
        """Kind and package -> finding."""
        found = find_wrong(self.look(mode, **params), expected)
        return {f"{one.kind} {one.package or ''}".strip(): one for one in found if one.kind != "no_baseline"}

    def run(self, source: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(
            [str(self.python), "-c", source], capture_output=True, text=True, env=environment, timeout=30, check=False
        )


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")

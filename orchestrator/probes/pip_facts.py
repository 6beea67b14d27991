"""What an installer's output says, as facts. The readers are pip_output, pip_rows and pip_trouble.

Rule: pure; a span is (start, end) in the text that was given, end exclusive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Span = tuple[int, int]

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = (
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[._-]?(?:a|b|c|rc|alpha|beta|pre|preview)[._-]?\d*)?(?:-\d+|[._-]?(?:post|rev|r)[._-]?\d*)?"
    r"(?:[._-]?dev[._-]?\d*)?(?:\+[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)?"
)
"""A version as PEP 440 spells it, and as older packages do."""


@dataclass(frozen=True)
class PipPackage:
    name: str | None
    """As it was written. None: only a path is known (`-e /srv/x`)."""
    version: str | None
    span: Span
    change: str | None = None
    """installed, removed, reinstalled: what the installer did; None: it is merely there."""
    source: str | None = None
    """file, url, git, hg, svn, bzr, conda, pypi (said by conda), folder; None: not said."""
    editable: bool = False
    location: str | None = None
    """Path or URL, decoded, without commit and fragment."""
    commit: str | None = None
    """Commit, tag or branch of a version control URL."""
    subdirectory: str | None = None
    foreign_path: bool = False
    """`location` is a path of a Windows machine."""
    build: str | None = None
    """conda's build string."""

    @property
    def key(self) -> str | None:
        """The name as names are compared (PEP 503)."""
        return normalise(self.name) if self.name is not None else None


@dataclass(frozen=True)
class PipTrouble:
    kind: str
    """half_removed, missing, conflict, twice, not_found, no_solution, build_failed, disk_full, managed, wrong_platform,
    wrong_python, hash_mismatch, broken_metadata, foreign_path, mixed, error."""
    text: str
    """One sentence."""
    span: Span
    package: str | None = None
    """The package that is wrong, or lacking: as it was written, or made out."""
    needed_by: str | None = None
    wanted: str | None = None
    """The requirement or version that was asked for."""
    found: str | None = None
    """The version that is there instead."""
    way_out: str = ""


@dataclass(frozen=True)
class PipOutput:
    packages: tuple[PipPackage, ...] = ()
    troubles: tuple[PipTrouble, ...] = ()
    said_fine: bool = False
    """`pip check` said that nothing is broken."""

    @property
    def by_key(self) -> dict[str, PipPackage]:
        """Name as compared -> what was said last; without what was removed."""
        found: dict[str, PipPackage] = {}
        for package in self.packages:
            if package.key is not None and package.change == "removed":
                found.pop(package.key, None)
            elif package.key is not None:
                found[package.key] = package
        return found


@dataclass
class PipReading:
    """What the row readers have gathered so far."""

    packages: list[PipPackage] = field(default_factory=list)
    troubles: list[PipTrouble] = field(default_factory=list)
    said_fine: bool = False


@dataclass(frozen=True)
class Row:
    """A line, cleaned of control sequences; its span is that of the whole line without the blanks around it."""

    text: str
    span: Span


def normalise(name: str) -> str:
    """PEP 503: lower case, each run of `-`, `_` and `.` one dash."""
    return re.sub(r"[-_.]+", "-", name).lower()


LARGE_PACKAGES = frozenset(
    {
        *(
            "torch",
            "torchvision",
            "torchaudio",
            "torchtext",
            "torchdata",
            "torchao",
            "triton",
            "pytorch-triton",
        ),
        *(
            "numpy",
            "scipy",
            "pandas",
            "pyarrow",
            "pip",
            "setuptools",
            "wheel",
            "transformers",
            "tokenizers",
        ),
        *(
            "datasets",
            "accelerate",
            "safetensors",
            "huggingface-hub",
            "wandb",
            "boto3",
            "botocore",
            "vllm",
        ),
        *(
            "sglang",
            "sgl-kernel",
            "flashinfer-python",
            "flash-attn",
            "xformers",
            "deepspeed",
            "apex",
        ),
        *(
            "bitsandbytes",
            "peft",
            "einops",
            "ninja",
            "cupy-cuda12x",
            "jax",
            "jaxlib",
            "tensorflow",
            "pillow",
        ),
        *(
            "opencv-python",
            "scikit-learn",
            "matplotlib",
            "pyyaml",
            "requests",
            "urllib3",
            "certifi",
            "aiohttp",
        ),
        *(
            "pydantic",
            "protobuf",
            "sympy",
            "networkx",
            "jinja2",
            "typing-extensions",
            "filelock",
            "fsspec",
        ),
        *("sentencepiece", "regex", "tqdm", "psutil"),
    }
)
"""Whose upgrades are seen to break half-way; to make out the letter that pip replaced."""


def whole_name(stump: str, known: frozenset[str] = frozenset()) -> str | None:
    """Of `~orch` (older pips print `-orch`): torch. pip moves `torch` aside as `~orch` while it upgrades. None: several
    names fit, or none that is known."""
    rest = normalise(re.sub(r"^[~-]+", "", stump))
    if rest.startswith("vidia-"):
        return "n" + rest
    for names in (known, LARGE_PACKAGES):
        fitting = {name for name in names if name[1:] == rest}
        if len(fitting) == 1:
            return fitting.pop()
    return rest if rest in known or rest in LARGE_PACKAGES else None

"""What an installer's output says, as facts. The readers are pip_output, pip_rows, pip_tables and pip_trouble."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import OWN_WORDS, Located, Piece, Span, Value

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = (
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[._-]?(?:a|b|c|rc|alpha|beta|pre|preview)[._-]?\d*)?(?:-\d+|[._-]?(?:post|rev|r)[._-]?\d*)?"
    r"(?:[._-]?dev[._-]?\d*)?(?:\+[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)?"
)
"""A version as PEP 440 spells it, and as older packages do."""


@dataclass(frozen=True)
class PipPackage(Located):
    name: str | None
    """As it was written. None: only a path is known (`-e /srv/x`)."""
    version: str | None
    change: str | None = None
    """installed, removed, reinstalled: what the installer did; None: it is merely there."""
    source: str | None = None
    """file, folder, url, git, hg, svn, bzr, conda, pypi (said by conda); None: not said."""
    editable: bool | None = None
    """None: not said."""
    location: str | None = None
    """Path or URL, decoded, without commit and fragment."""
    commit: str | None = None
    """Commit, tag or branch of a version control URL."""
    subdirectory: str | None = None
    foreign_path: bool | None = None
    """True: `location` is a path of a Windows machine."""
    build: str | None = None
    """conda's build string."""

    @property
    def key(self) -> str | None:
        """The name as names are compared (PEP 503)."""
        return normalise(self.name) if self.name is not None else None


@dataclass(frozen=True)
class PipTrouble(Finding):
    """kind: half_removed, missing, conflict, twice, not_found, no_solution, build_failed, disk_full, no_network,
    no_permission, managed, wrong_platform, wrong_python, hash_mismatch, broken_metadata, foreign_path, mixed, error.

    named: `package` (the one that is wrong or lacking, as it was written or made out), `needed_by`, `wanted` (the
    requirement or version that was asked for), `found` (the version that is there instead)."""

    meaning: str = field(default="", metadata=OWN_WORDS)
    """One sentence."""


@dataclass(frozen=True)
class PipOutput(Located):
    packages: tuple[PipPackage, ...] = ()
    findings: tuple[PipTrouble, ...] = ()
    said_fine: bool | None = None
    """True: `pip check` said that nothing is broken."""

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
    findings: list[PipTrouble] = field(default_factory=list)
    said_fine: Span | None = None


@dataclass(frozen=True)
class Row:
    """A line without the blanks around it."""

    text: str
    """Cleaned of control sequences."""
    piece: Piece
    """As it stands in the input."""

    @property
    def span(self) -> Span:
        return self.piece.span

    def find(self, value: str, after: int = 0) -> Span | None:
        """Where the value stands, literally or as a URL writes it; `after`: an offset in the input."""
        for spelled in (value, value.replace("+", "%2B"), value.replace("+", "%2b")):
            at = self.piece.text.find(spelled, max(0, after - self.piece.start))
            if spelled and at >= 0:
                return self.piece.cut(at, at + len(spelled)).span
        return None


def placed(package: PipPackage, row: Row) -> PipPackage:
    """With a span for each value: where it stands in the row; the whole row for what is made out of it."""
    spans: dict[str, Span] = {}
    after = 0
    for name in ("name", "version", "build", "location", "commit", "subdirectory", "change", "source", "editable"):
        value = getattr(package, name)
        if value is None:
            continue
        found = row.find(value, after) or row.find(value) if isinstance(value, str) else None
        spans[name] = found or row.span
        if found and name in ("name", "version"):
            after = found.end
    if package.foreign_path:
        spans["foreign_path"] = spans.get("location", row.span)
    return replace(package, spans=spans)


def trouble(
    row: Row,
    kind: str,
    meaning: str,
    package: str | None = None,
    needed_by: str | None = None,
    wanted: str | None = None,
    found: str | None = None,
    way_out: str = "",
) -> PipTrouble:
    named = {"package": package, "needed_by": needed_by, "wanted": wanted, "found": found}
    values = {name: Value(value, row.find(value) or row.span) for name, value in named.items() if value}
    told = finding_at(row.piece, kind, way_out, values)
    return PipTrouble(told.kind, told.said, told.named, told.way_out, meaning, spans=told.spans)


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

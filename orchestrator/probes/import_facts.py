"""What an import that failed says, as facts; import_failure reads them, import_signs knows the sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.probes.finding import Finding
from orchestrator.probes.spans import OWN_WORDS, Located


@dataclass(frozen=True)
class ImportTrouble(Finding):
    """kind: library_missing, driver_library_missing, library_broken, library_refused, older_library_first,
    built_for_another_torch, undefined_symbol, system_too_old, module_missing, name_missing, shadowed, numpy_mismatch,
    version_mismatch, another_python, protobuf_mismatch, extension_not_built, wrapper, cut_off.

    named: `library`, `package` (which provides it, or must be installed anew), `file` (that wanted it), `symbol`,
    `version`, `module`, `name`, `path`: those that the kind has."""

    meaning: str = field(default="", metadata=OWN_WORDS)
    """One sentence."""
    role: str = field(default="", metadata=OWN_WORDS)
    """cause: what failed first; wrapper: it only repeats; further: failed too, or because of it."""


@dataclass(frozen=True)
class MissingLibrary(Located):
    library: str
    package: str | None
    """Which provides it. None: not known."""


@dataclass(frozen=True)
class ImportFailures(Located):
    missing: tuple[MissingLibrary, ...] = ()
    """Each library once, in the order of the text."""
    findings: tuple[ImportTrouble, ...] = ()
    torch_importable: bool | None = None
    """False: it was torch itself that could not be imported."""

    @property
    def cause(self) -> ImportTrouble | None:
        return next((finding for finding in self.findings if finding.role == "cause"), None)

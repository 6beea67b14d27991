"""Runs first on the far side: makes the package `orch_agent` importable from memory, then starts the server.

Executed by the bootstrap with `PACKED` (bytes) in its namespace; imported by nobody there. Rule: it imports
nothing that the server does not need anyway, for it runs at the start of every connection.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Tuple

PACKAGE = "orch_agent"


def unpack(packed: bytes) -> Dict[str, bytes]:
    """`name size\\n` + content, again and again."""
    files = {}
    position = 0
    while position < len(packed):
        line_end = packed.index(b"\n", position)
        name, size = packed[position:line_end].split()
        position = line_end + 1 + int(size)
        files[name.decode("ascii")] = packed[line_end + 1 : position]
    return files


class BundleImporter:
    """Finder and loader. Tracebacks show source lines, because linecache asks `get_source`.

    Not derived from importlib.abc: that import costs more than the rest of the start."""

    def __init__(self, packed: bytes) -> None:
        line, _, files = packed.partition(b"\n")
        self._agent_hash = line.decode("ascii")
        self._files = unpack(files)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = self._file_of(name)
        if found is None:
            return None
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=found[0], is_package=name == PACKAGE)
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # the usual kind of module

    def get_source(self, fullname: str) -> str:
        found = self._file_of(fullname)
        if found is None:
            raise ImportError("no module %s in the bundle" % fullname)
        return found[1].decode("utf-8")

    def get_code(self, fullname: str) -> CodeType:
        origin, source = self._file_of(fullname) or ("", b"")
        return compile(source, origin, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == PACKAGE:
            module.__dict__["SOURCES"] = self._files
            module.__dict__["AGENT_HASH"] = self._agent_hash
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102

    def _file_of(self, name: str) -> Tuple[str, bytes] | None:
        if name == PACKAGE:
            file = "__init__.py"
        elif name.startswith(PACKAGE + "."):
            file = name[len(PACKAGE) + 1 :] + ".py"
        else:
            return None
        source = self._files.get(file)
        return None if source is None else ("<orch>/%s/%s" % (PACKAGE, file), source)


if "PACKED" in globals():
    sys.meta_path.insert(0, BundleImporter(globals()["PACKED"]))
    from orch_agent import server  # type: ignore[import-not-found]

    server.main()

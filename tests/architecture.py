"""The project's structural rules as functions over source text; tests/test_architecture.py applies them.

Rule: every function takes modules (dotted name -> source) and returns sentences, one a violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

MAX_LINES = 400
MAX_FUNCTION_LINES = 60
CONTRACT = "remote_payload.contract"

# What each part may import besides itself. A part not named here may not exist.
_PURE_LOW = {"errors", "contract", "inventory"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "contract": set(),
    "far": {"contract"},
    "inventory": {"errors"},
    "transport": {"errors", "inventory"},
    "container": {"errors", "inventory", "transport"},
    "agent": {"errors", "contract", "inventory", "transport", "container", "far"},
    "probes": _PURE_LOW,
    "ledger": _PURE_LOW | {"probes"},
    "diagnosis": _PURE_LOW | {"probes", "ledger"},
    "reports": _PURE_LOW | {"probes", "ledger", "diagnosis"},
    "lab": {"errors", "inventory", "transport", "container"},
}
_BELOW_OPERATIONS = set(ALLOWED) - {"far", "lab"}
ALLOWED["operations"] = _BELOW_OPERATIONS | {"orchestrator"}  # its version, for records
ALLOWED["playbook"] = _BELOW_OPERATIONS | {"operations"}
ALLOWED["api"] = _BELOW_OPERATIONS | {"operations", "playbook"}
ALLOWED["cli"] = _BELOW_OPERATIONS | {"operations", "playbook", "lab", "orchestrator"}
ALLOWED["orchestrator"] = {"cli"}

PURE_PARTS = {"probes", "ledger", "diagnosis", "reports"}
# Where bytes, processes and files are touched. Everything else asks these.
IO_PARTS = {"transport", "agent", "far", "lab", "contract"}
IO_MODULES = {
    "orchestrator.inventory.loader",
    "orchestrator.inventory.cache",
    "orchestrator.ledger.store",
    "orchestrator.operations.captured",
    "orchestrator.operations.notify",
    "orchestrator.operations.object_store",
    "orchestrator.operations.publish",
    "orchestrator.operations.schedule",
    "orchestrator.playbook.store",
}
# The command line may give its terminal away: it has to become the other program.
EXEC_PARTS = {"cli"}

IO_IMPORTS = {
    *(
        "subprocess",
        "socket",
        "socketserver",
        "ssl",
        "select",
        "selectors",
        "pty",
        "fcntl",
        "ctypes",
        "multiprocessing",
    ),
    *("asyncssh", "paramiko", "fabric", "invoke", "sqlite3", "shutil", "tempfile", "http", "urllib.request"),
    *("ftplib", "smtplib", "asyncio.subprocess"),
}
_OS_PROCESS = {"system", "popen", "fork", "forkpty", "kill", "killpg", "posix_spawn", "posix_spawnp"}
_OS_FILES = {
    *("open", "remove", "unlink", "rename", "renames", "replace", "mkdir", "makedirs", "rmdir", "removedirs"),
    *("listdir", "scandir", "walk", "stat", "lstat", "chmod", "chown", "link", "symlink", "truncate", "utime"),
}
_ASYNCIO_IO = {
    *("create_subprocess_exec", "create_subprocess_shell", "open_connection", "open_unix_connection"),
    *("start_server", "start_unix_server"),
}
_PATH_METHODS = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "rmdir", "unlink", "touch", "iterdir", "rglob"),
    *("symlink_to", "hardlink_to", "is_file", "is_dir", "exists"),
}
# A pure part gets the time, the environment and chance as arguments.
IMPURE_IMPORTS = {
    *("os", "sys", "time", "asyncio", "threading", "signal", "random", "secrets", "getpass", "platform", "glob"),
}
_CLOCK_CALLS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}

HEAVY = {
    *(
        "asyncssh",
        "boto3",
        "botocore",
        "pydantic",
        "yaml",
        "rich",
        "tenacity",
        "torch",
        "transformers",
        "paramiko",
        "fabric",
    ),
    *("asyncio", "sqlite3", "subprocess", "importlib.metadata"),
}
CHEAP_STARTS = ("orchestrator", "orchestrator.__main__", "orchestrator.cli.main")
NEWER_THAN_3_8 = {"tomllib", "zoneinfo", "graphlib", "compression", "annotationlib"}


@dataclass(frozen=True)
class Import:
    name: str
    line: int
    at_start: bool
    """Executed when the module is imported (not inside a function, not under TYPE_CHECKING)."""


def part_of(module: str) -> str:
    """The part of the project a module belongs to: `transport`, `far`, `contract`, ..."""
    if module == CONTRACT:
        return "contract"
    words = module.split(".")
    if words[0] == "remote_payload":
        return "payload"
    if words[:3] == ["orchestrator", "agent", "far"]:
        return "far"
    if len(words) == 1 or words[1] == "__main__":
        return "orchestrator"
    return words[1]


@cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def imports_of(module: str, source: str, *, is_package: bool = False) -> list[Import]:
    """Every import, wherever it stands. `from a import b` yields `a.b`."""
    found: list[Import] = []

    def visit(node: ast.AST, at_start: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, at_start) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                origin = ".".join([*package, origin] if origin else package)
            found.extend(Import(f"{origin}.{alias.name}", node.lineno, at_start) for alias in node.names)
        inside = at_start and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            inside = False
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(_tree(source), True)
    return found


def _imported_modules(modules: Mapping[str, str], module: str) -> Iterator[tuple[str, Import]]:
    """The project's own modules that `module` imports."""
    is_package = any(other.startswith(module + ".") for other in modules)
    for item in imports_of(module, modules[module], is_package=is_package):
        if not item.name.startswith(("orchestrator", "remote_payload")):
            continue
        if item.name in modules:
            yield item.name, item
        else:
            owner = item.name.rpartition(".")[0]
            yield (owner if owner else item.name), item


def check_direction(modules: Mapping[str, str]) -> list[str]:
    """Imports run one way, and the two halves meet in contract.py only."""
    wrong = []
    for module in modules:
        part = part_of(module)
        if part != "payload" and part not in ALLOWED:
            wrong.append(f"{module}: `{part}` is not a part that tests/architecture.py knows")
            continue
        for target, item in _imported_modules(modules, module):
            other = part_of(target)
            where = f"{module}:{item.line}: imports {target}"
            if part in ("payload", "contract"):
                if target.startswith("orchestrator"):
                    wrong.append(f"{where}: the payload never imports the orchestrator")
            elif other == "payload":
                wrong.append(f"{where}: the orchestrator takes nothing of the payload but {CONTRACT}")
            elif other != part and other not in ALLOWED[part]:
                wrong.append(f"{where}: {part} may import {', '.join(sorted(ALLOWED[part])) or 'nothing'}")
            elif part in PURE_PARTS and other == "inventory" and target != "orchestrator.inventory.model":
                wrong.append(f"{where}: a pure part knows the inventory's facts (model) only")
    return wrong


def check_thin_packages(modules: Mapping[str, str]) -> list[str]:
    """A package's `__init__` imports nothing of the project: every known import cycle passes through one."""
    packages = {name for name in modules if any(other.startswith(name + ".") for other in modules)}
    return [
        f"{package}/__init__.py:{item.line}: imports {target}; import modules by their full name where they are used"
        for package in sorted(packages)
        for target, item in _imported_modules(modules, package)
    ]


def check_cycles(modules: Mapping[str, str]) -> list[str]:
    """No cycle, not even one that a function-level import or TYPE_CHECKING hides."""
    edges = {
        module: {target for target, _ in _imported_modules(modules, module) if target in modules and target != module}
        for module in modules
    }
    done: set[str] = set()
    cycles: list[str] = []

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            cycles.append("import cycle: " + " -> ".join([*path[path.index(module) :], module]))
            return
        if module in done:
            return
        for target in sorted(edges[module]):
            walk(target, [*path, module])
        done.add(module)

    for module in sorted(modules):
        walk(module, [])
    return cycles


def _matches(name: str, listed: Iterable[str]) -> str | None:
    return next((entry for entry in listed if name == entry or name.startswith(entry + ".")), None)


def _io_calls(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield node.lineno, "open()"
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value.id if isinstance(called.value, ast.Name) else ""
        name = called.attr
        is_exec = name.startswith(("exec", "spawn"))
        if owner == "os" and name == "open" and node.args and ast.unparse(node.args[0]) == "os.devnull":
            continue  # turning an output off is how a broken pipe is silenced
        if owner == "os" and (is_exec or name in _OS_PROCESS or name in _OS_FILES):
            yield node.lineno, f"os.{name}()"
        elif owner == "asyncio" and name in _ASYNCIO_IO:
            yield node.lineno, f"asyncio.{name}()"
        elif name in _PATH_METHODS or (name == "open" and _is_file_mode(node.args)):
            yield node.lineno, f".{name}()"


def _is_file_mode(args: list[ast.expr]) -> bool:
    """Path.open takes the mode first; what else is called `open` takes no such text."""
    first = args[0].value if args and isinstance(args[0], ast.Constant) else None
    return isinstance(first, str) and 0 < len(first) <= 3 and set(first) <= set("rwxabt+")


def check_io(modules: Mapping[str, str]) -> list[str]:
    """Processes, sockets and files are touched at the edge only."""
    wrong = []
    for module, source in modules.items():
        part = part_of(module)
        if part in IO_PARTS or part == "payload" or module in IO_MODULES:
            continue
        for item in imports_of(module, source):
            if found := _matches(item.name, IO_IMPORTS):
                wrong.append(f"{module}:{item.line}: imports {found}: IO belongs to {', '.join(sorted(IO_PARTS))}")
        for line, call in _io_calls(source):
            if part in EXEC_PARTS and call.startswith("os.exec"):
                continue
            wrong.append(f"{module}:{line}: calls {call}: IO belongs to {', '.join(sorted(IO_PARTS))}")
    return wrong


def check_pure(modules: Mapping[str, str]) -> list[str]:
    """Probes, records, diagnosis and reports read no clock, no environment, no chance."""
    wrong = []
    for module, source in modules.items():
        if part_of(module) not in PURE_PARTS or module in IO_MODULES:
            continue
        for item in imports_of(module, source):
            if found := _matches(item.name, IMPURE_IMPORTS):
                wrong.append(f"{module}:{item.line}: imports {found}: a pure module gets it as an argument")
        for node in ast.walk(_tree(source)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if (owner, node.attr) in _CLOCK_CALLS:
                    wrong.append(
                        f"{module}:{node.lineno}: {owner}.{node.attr}: a pure module gets the time as an argument"
                    )
    return wrong


def check_size(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{module}: {lines} lines, {MAX_LINES} is the limit"
        for module, source in modules.items()
        if (lines := len(source.splitlines())) > MAX_LINES
    ]


def check_function_size(modules: Mapping[str, str]) -> list[str]:
    """A function within another counts as part of it, too."""
    return [
        f"{module}.{node.name}: {lines} lines, {MAX_FUNCTION_LINES} is the limit: give a part of it a name"
        for module, source in modules.items()
        for node in ast.walk(_tree(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def check_old_python(modules: Mapping[str, str]) -> list[str]:
    """What travels to the target is stdlib-only and reads as Python 3.8."""
    wrong = []
    for module, source in modules.items():
        part = part_of(module)
        if part not in ("far", "contract"):
            continue
        try:
            ast.parse(source, feature_version=(3, 8))
        except SyntaxError as error:
            wrong.append(f"{module}:{error.lineno}: not Python 3.8: {error.msg}")
            continue
        own = {"orch_agent", "contract"} if part == "far" else set()
        for item in imports_of(module, source, is_package=module.endswith(".far")):
            top = item.name.partition(".")[0]
            project = part == "far" and item.name.startswith(("orchestrator.agent.far", CONTRACT))
            meets_contract = part == "far" and item.name == "remote_payload.contract"
            if project or meets_contract or top in own:
                continue
            if top not in sys.stdlib_module_names or top in NEWER_THAN_3_8:
                wrong.append(f"{module}:{item.line}: imports {item.name}: only Python 3.8's standard library is there")
    return wrong


def check_cheap_start(modules: Mapping[str, str]) -> list[str]:
    """`orch --help` imports nothing heavy: neither cli/main.py nor what it imports at its top."""
    wrong = []
    seen: set[str] = set()
    waiting = [name for name in CHEAP_STARTS if name in modules]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for item in imports_of(module, modules[module]):
            if item.at_start and (found := _matches(item.name, HEAVY)):
                wrong.append(f"{module}:{item.line}: imports {found} at start; import it inside the function")
        waiting.extend(
            target for target, item in _imported_modules(modules, module) if item.at_start and target in modules
        )
    return wrong


def check_argparse(modules: Mapping[str, str]) -> list[str]:
    """Command lines are parsed in cli only (the payload has its own)."""
    return [
        f"{module}:{item.line}: imports argparse: command lines are parsed in cli"
        for module, source in modules.items()
        if part_of(module) not in ("cli", "payload")
        for item in imports_of(module, source)
        if _matches(item.name, ["argparse"])
    ]


RULES = (
    check_direction,
    check_thin_packages,
    check_cycles,
    check_io,
    check_pure,
    check_size,
    check_function_size,
    check_old_python,
    check_cheap_start,
    check_argparse,
)

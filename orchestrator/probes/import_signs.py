"""The sentences of a failed import: of the dynamic linker, Python, torch, transformers and numpy.

Rule: pure; a line is searched, since it comes behind log prefixes; the first sentence that is found in a line decides,
and none matches by a name alone. Each has a judge that says what it means and which package to see to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.probes.libraries import (
    KEEPS_ENDING,
    is_torch_symbol,
    library_of_symbol,
    package_base,
    package_of_file,
    package_of_module,
    provider,
    readable,
    wheel_name,
)

_BEGIN = r"(?<![\w+./@~-])"  # nothing is tried in the middle of a word: a long line stays cheap
LIBRARY = _BEGIN + r"(?P<library>[\w+./@~-]+\.so(?:\.\d+)*)"
FILE = _BEGIN + r"(?=[\w+./@~-]*\.(?:so|pyd|dylib)\b)(?P<file>[\w+./@~-]+)"


@dataclass(frozen=True)
class Judgement:
    kind: str
    meaning: str
    way_out: str = ""
    package: str | None = None
    library: str | None = None
    """Where the sentence names it only indirectly."""


@dataclass(frozen=True)
class Sign:
    pattern: re.Pattern[str]
    judge: Callable[[dict[str, str], int | None], Judgement]
    """(named groups, CUDA major as far as the text tells) -> what it means."""


def _install(package: str, cuda: int | None) -> str:
    if package.startswith("nvidia-") and cuda is None:
        base = package_base(package)
        other = wheel_name(base, base in KEEPS_ENDING, 13)
        also = f" (of a torch for CUDA 13: {other})" if other != package else ""
        return f"install {package}{also} in the version that torch requires: pip show -v torch; or install torch again"
    which = "   in the version that torch requires" if package.startswith("nvidia-") else ""
    return f"pip install --force-reinstall --no-deps {package}{which}"


def library_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    library = said["library"].rsplit("/", 1)[-1]
    known = provider(library, cuda)
    owner = package_of_file(said["library"])
    if known is None and owner is not None:
        return Judgement("library_missing", f"{library} of {owner} is missing", _again(owner), owner)
    if known is None:
        meaning = f"{library} is missing, or not where the linker looks"
        return Judgement("library_missing", meaning, "find who needs it: ldd, and who brings it: apt-file search")
    if known.kind == "driver":
        meaning = f"{library} is missing: it comes with the NVIDIA driver, which is not visible here"
        way_out = "give the container the driver's libraries and devices, of the host's version"
        return Judgement("driver_library_missing", meaning, way_out, known.package)
    if known.kind == "bundled":
        package = owner or known.package
        return Judgement("library_missing", f"{library} of {package} is missing", _again(package), package)
    if known.kind == "system":
        meaning = f"{library} is missing: the system's package {known.package} provides it"
        return Judgement("library_missing", meaning, f"apt-get install {known.package}", known.package)
    meaning = f"{library} is missing: {known.package} provides it and is not installed, not whole, or not on the path"
    if cuda is not None and known.cuda_major not in (None, cuda):
        meaning = f"{library}, of {known.package}, is missing: who loads it is built for CUDA {known.cuda_major}"
        meaning += f", and the torch here for CUDA {cuda}"
        way_out = f"install a build for CUDA {cuda} of what loads it, or a torch for CUDA {known.cuda_major}"
        return Judgement("library_missing", meaning, way_out, known.package)
    return Judgement("library_missing", meaning, _install(known.package, known.cuda_major or cuda), known.package)


def undefined_symbol(said: dict[str, str], cuda: int | None) -> Judgement:
    symbol, file = said["symbol"], said.get("file") or ""
    owner = package_of_file(file)
    by = owner or file.rsplit("/", 1)[-1] or "a library"
    if re.match(r"_?Py[A-Z_]\w*", symbol):
        meaning = f"{by} was built for another Python: this one has no {symbol}"
        return Judgement("another_python", meaning, _again(owner), owner)
    version = said.get("version") or ""
    library = version if re.match(r"lib\S+\.so", version) else library_of_symbol(symbol)
    if library is not None:
        known = provider(library + ".12" if library.endswith(".so") else library, cuda)
        package = known.package if known else None
        meaning = f"{by} wants {symbol} of {library}: an older {library} is loaded first"
        way_out = (
            "see which one is loaded: LD_DEBUG=libs python -c 'import torch' 2>&1 | grep "
            f"{library.split('.so')[0]}; take other copies out of LD_LIBRARY_PATH"
        )
        if package and known and known.kind == "wheel":
            way_out += f", or install {package} in the version that torch requires"
        return Judgement("older_library_first", meaning, way_out, package, library)
    if is_torch_symbol(symbol):
        stem = re.split(r"[.-]", file.rsplit("/", 1)[-1])[0]
        if owner is None and not re.match(r"lib(?:torch|c10)|_C$|$", stem):
            owner = package_of_module(stem)
        elif owner is None and stem == "_C" and file.count("/"):
            owner = package_of_module(file.rsplit("/", 2)[-2])  # /workspace/vllm/_C.abi3.so
        if owner in (None, "torch"):
            meaning = f"{by} wants {readable(symbol)}: libraries of two builds of torch are mixed"
            way_out = "install torch again, and unset LD_LIBRARY_PATH"
            return Judgement("built_for_another_torch", meaning, way_out, "torch")
        meaning = f"{owner} was built for another torch: this one has no {readable(symbol)}"
        return Judgement("built_for_another_torch", meaning, f"install a build of {owner} for this torch", owner)
    meaning = f"{by} wants {readable(symbol)}, which no library has that is loaded"
    return Judgement("undefined_symbol", meaning, _again(owner), owner)


def version_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    version, file = said["version"], said.get("by") or said.get("file") or ""
    owner = package_of_file(file)
    by = owner or file.rsplit("/", 1)[-1] or "a library"
    if version.startswith("GLIBC_"):
        meaning = f"{by} needs glibc {version[6:]}; the one of this system is older"
        way_out = f"take a build of {by} for an older glibc, or a newer system"
        return Judgement("system_too_old", meaning, way_out, owner)
    if re.match(r"GLIBCXX_|CXXABI_|GCC_", version):
        meaning = f"{by} needs a libstdc++ that has {version}; the one that is loaded first is older"
        way_out = "apt-get install libstdc++6, or conda's libstdcxx-ng; see LD_LIBRARY_PATH for an older copy"
        return Judgement("system_too_old", meaning, way_out, owner)
    library = said.get("library") or version
    known = provider(library, cuda)
    meaning = f"{by} needs {version} of {library.rsplit('/', 1)[-1]}; the one that is loaded first is another version"
    package = known.package if known else owner
    return Judgement("older_library_first", meaning, _again(package), package)


def module_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    module = said["module"]
    package = package_of_module(module)
    top = module.split(".")[0]
    if said.get("not_package"):
        meaning = f"{top} is another module than the package of that name: a file {top}.py lies before it"
        return Judgement("shadowed", meaning, f"rename {top}.py in the folder that is run, or on PYTHONPATH", package)
    if top != module:
        meaning = f"{module} is missing: {package} is of another version, not whole, or a folder {top}/ lies before it"
        return Judgement("module_missing", meaning, f"pip show {package}", package)
    return Judgement("module_missing", f"{module} is not installed", f"pip install {package}", package)


def name_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    module, name = said["module"], said["name"]
    package = package_of_module(module)
    path = said.get("path") or ""
    if said.get("partially") or said.get("circular"):
        shadow = path and "-packages/" not in path
        if shadow:
            meaning = f"{path} lies before the package {module.split('.')[0]} and is imported in its place"
            return Judgement("shadowed", meaning, f"rename {path}", package)
        meaning = f"{module} is imported while it is being imported: a circle, or a file that has its name"
        return Judgement("shadowed", meaning, f"see whether a file {module.split('.')[0]}.py lies before it", package)
    meaning = f"{module} has no {name}: {package} is of another version than whoever imports it wants"
    return Judgement("name_missing", meaning, f"pip show {package}   and what requires it: pip check", package)


def shadowed(said: dict[str, str], cuda: int | None) -> Judgement:
    path, module = said.get("path") or "", said.get("module") or ""
    where = path or f"a file {module}.py"
    return Judgement("shadowed", f"{where} is imported in place of the module of that name", f"rename {where}")


def not_built(said: dict[str, str], cuda: int | None) -> Judgement:
    meaning = f"the extension {said['module']} could not be compiled"
    return Judgement(
        "extension_not_built", meaning, "the compiler's own words are above: nvcc, its version, ninja, gcc"
    )


def protobuf_mismatch(said: dict[str, str], cuda: int | None) -> Judgement:
    meaning = "a package was made for an older protobuf than the one that is installed"
    return Judgement("protobuf_mismatch", meaning, "upgrade that package, or: pip install 'protobuf<4'", "protobuf")


def numpy_mismatch(said: dict[str, str], cuda: int | None) -> Judgement:
    meaning = "a package was built for another numpy than the one that is installed"
    way_out = "install the numpy that it was built for (numpy<2 for one of the time before), or a newer build of it"
    return Judgement("numpy_mismatch", meaning, way_out, "numpy")


def operator_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    package = package_of_module(said["module"])
    meaning = f"{package} was built for another torch: its operators do not load"
    return Judgement("built_for_another_torch", meaning, f"install the {package} of this torch's version", package)


def cuda_mismatch(said: dict[str, str], cuda: int | None) -> Judgement:
    package = said["module"].lower()
    meaning = f"torch is built for CUDA {said['wanted']}, {package} for CUDA {said['found'].rstrip('.')}"
    return Judgement("built_for_another_torch", meaning, f"install the {package} of this torch's build", package)


def broken(said: dict[str, str], cuda: int | None) -> Judgement:
    file = said.get("file") or said.get("library") or ""
    owner = package_of_file(file)
    meaning = f"{file.rsplit('/', 1)[-1] or 'a library'} is broken or for another machine: {said['why']}"
    return Judgement("library_broken", meaning, _again(owner), owner)


def refused(said: dict[str, str], cuda: int | None) -> Judgement:
    file = (said.get("file") or said.get("library") or "").rsplit("/", 1)[-1] or "a library"
    ways = {
        "executable stack": "clear its flag: patchelf --clear-execstack FILE",
        "static TLS": f"import it first, or LD_PRELOAD={file}",
        "map segment": "the folder may be mounted noexec: mount | grep noexec; or the memory limit is reached",
        "Permission": "see the permissions of the file and of the folders above it",
        "Too many open": "raise the limit: ulimit -n",
    }
    why = said["why"]
    way_out = next((way for words, way in ways.items() if words in why), "")
    return Judgement("library_refused", f"{file} is there, but the system does not load it: {why}", way_out)


def another_python(said: dict[str, str], cuda: int | None) -> Judgement:
    what = said.get("module") or (said.get("file") or "").rsplit("/", 1)[-1] or "a module"
    module = said.get("module") or "_"
    package = None if module.startswith("_") else package_of_module(module)
    return Judgement("another_python", f"{what} was built for another Python", _again(package), package)


def version_mismatch(said: dict[str, str], cuda: int | None) -> Judgement:
    wanted, package = said["wanted"], re.split(r"[=<>!~ ]", said["wanted"])[0]
    found = said.get("found")
    if found is None:
        return Judgement("module_missing", f"{wanted} is not installed", f"pip install '{wanted}'", package)
    meaning = f"{wanted} is required, and {found} is installed"
    return Judgement("version_mismatch", meaning, f"pip install '{wanted}'", package)


def package_missing(said: dict[str, str], cuda: int | None) -> Judgement:
    package = package_of_module(said["module"])
    return Judgement("module_missing", f"{said['module']} is not installed", f"pip install {package}", package)


def source_tree(said: dict[str, str], cuda: int | None) -> Judgement:
    meaning = "a folder torch/ of PyTorch's sources is imported in place of the package"
    return Judgement("shadowed", meaning, "start from another folder, or take it out of PYTHONPATH", "torch")


def elsewhere(said: dict[str, str], cuda: int | None) -> Judgement:
    """Windows and macOS word it their own way."""
    library = re.split(r"[\\/]", said["library"])[-1]
    meaning = f"{library}, or a library that it needs, is missing"
    owner = package_of_file(said["library"].replace("\\", "/"))
    return Judgement("library_missing", meaning, _again(owner) or "install the package that brings it again", owner)


def wrapper(said: dict[str, str], cuda: int | None) -> Judgement:
    return Judgement("wrapper", f"{said.get('module') or 'a module'} could not be imported, because of another error")


def _again(package: str | None) -> str:
    return f"pip install --force-reinstall --no-deps {package}" if package else ""


_QUOTE = r"[`'\"‘’“”]"
_SENTENCES: tuple[tuple[str, Callable[[dict[str, str], int | None], Judgement]], ...] = (
    (
        rf"(?:{FILE}: )?version {_QUOTE}(?P<version>[\w.+-]+){_QUOTE} not found(?: \(required by (?P<by>[^)\s]+)\))?",
        version_missing,
    ),
    (
        rf"(?:{FILE}: )?(?:undefined symbol|symbol not found in flat namespace|Symbol not found): "
        rf"\(?{_QUOTE}?(?P<symbol>[\w$@.]+){_QUOTE}?\)?(?:, version (?P<version>[\w.+-]+))?",
        undefined_symbol,
    ),
    (
        rf"{FILE}: symbol (?P<symbol>\w+),? version (?P<version>[\w.+-]+) not defined in file (?P<library>\S+)",
        version_missing,
    ),
    (
        rf"{LIBRARY}: (?P<why>cannot open shared object file: (?:Permission denied|Too many open files)"
        r"|cannot enable executable stack[^\n]*|cannot allocate memory in static TLS block"
        r"|failed to map segment from shared object[^\n]*)",
        refused,
    ),
    (
        rf"{LIBRARY}: (?P<why>file too short|invalid ELF header|wrong ELF class: \w+|cannot read file data[^\n]*"
        r"|ELF load command [^\n]*|ELF file[^\n]*|cannot dynamically load [^\n]*)",
        broken,
    ),
    (rf"{LIBRARY}: cannot open shared object file", library_missing),
    (rf"{LIBRARY} => not found", library_missing),
    (rf"Error loading shared library {LIBRARY}: No such file", library_missing),
    (rf"Cannot load {LIBRARY} or ", library_missing),
    (r"Error loading \"(?P<library>[^\"\n]+?\.dll)\" or one of its dependencies", elsewhere),
    (r"DLL load failed while importing (?P<library>\w+)", elsewhere),
    (r"Library not loaded: (?P<library>\S+\.dylib)", elsewhere),
    (r"cannot load library ['\"](?P<library>[\w.+-]+)['\"]", elsewhere),
    (rf"Could not load (?:dynamic )?library {_QUOTE}?{LIBRARY}", library_missing),
    (rf"Unable to load any of \{{{LIBRARY}", library_missing),
    (r"(?<![\w+-])(?P<library>lib[\w+-]+\.so)\.\*\[0-9\] not found in the system path", library_missing),
    (rf"(?:ImportError|OSError): {LIBRARY}: \S+", library_missing),
    (
        r"No module named (?P<q>['\"]?)(?P<module>[\w.]+)(?P=q)(?P<not_package>; ['\"][\w.]+['\"] is not a package)?",
        module_missing,
    ),
    (
        r"(?<![\w.-])(?P<wanted>[\w.-]{1,100}[=<>!~]\S{0,100}) is required for a normal functioning of this module,"
        r" but found (?P<found>[\w.-]+==[\w.+!-]*\w)",
        version_mismatch,
    ),
    (r"The ['\"](?P<wanted>[\w.-]+[^'\"]*)['\"] distribution was not found and is required by", version_mismatch),
    (
        r"VersionConflict: \((?P<found>[\w.-]+ [\w.+!-]+) \([^)\n]*\), Requirement\.parse\(['\"](?P<wanted>[^'\"]+)",
        version_mismatch,
    ),
    (
        r"No package metadata was found for (?P<module>[\w.-]+)"
        r"|the package (?P<other>[\w.-]+) seems to be not installed"
        r"|requires the (?P<third>[\w.-]+) library but it was not found in your environment",
        package_missing,
    ),
    (r"PyTorch has loaded the `?torch/_C`? folder of the PyTorch repository", source_tree),
    (
        r"\(consider renaming ['\"](?P<path>[^'\"]+)['\"] (?:since|if) it has the same name as the (?:standard library|"
        r"third-party|library)[^'\"]*(?:['\"](?P<module>\w+)['\"])?",
        shadowed,
    ),
    (
        r"cannot import name ['\"](?P<name>\w+)['\"] from (?P<partially>partially initialized module )?"
        r"['\"](?P<module>[\w.]+)['\"](?P<circular> \(most likely due to a circular import\))?"
        r"(?: \((?P<path>[^)\s]+)\))?",
        name_missing,
    ),
    (
        r"(?P<partially>partially initialized module )['\"](?P<module>[\w.]+)['\"]"
        r"(?: from ['\"](?P<path>[^'\"]+)['\"])? has no attribute ['\"](?P<name>\w+)['\"]",
        name_missing,
    ),
    (r"Error building extension ['\"](?P<module>[\w.-]{1,100})['\"]", not_built),
    (r"TypeError: Descriptors cannot(?: not)? be created directly", protobuf_mismatch),
    (r"numpy\.core\.\w+ failed to import|Numpy is not available", numpy_mismatch),
    (
        r"compiled using NumPy 1\.x cannot be run|numpy\.core\.multiarray failed to import|_ARRAY_API not found"
        r"|numpy\.\w+ size changed|compiled against A[PB]I version 0x\w+ but this version of numpy",
        numpy_mismatch,
    ),
    (r"operator (?P<module>torch\w+|xformers|flash_attn|mmcv|vllm|_C)::(?P<name>\w+) does not exist", operator_missing),
    (
        r"PyTorch and (?P<module>\w+) were compiled with different CUDA (?:major )?versions\.\s*PyTorch has CUDA"
        r" [Vv]ersion[= ](?P<wanted>[\d.]*\d) (?:and|whereas) \w+ has CUDA [Vv]ersion[= ](?P<found>[\d.]*\d)",
        cuda_mismatch,
    ),
    (
        r"dynamic module does not define (?:module export|init) function \((?:PyInit_|init)(?P<module>\w+)\)"
        r"|bad magic number in ['\"](?P<other>[\w.]+)['\"]"
        r"|module was compiled for Python [\d.]+, but the interpreter",
        another_python,
    ),
    (
        r"Failed to import (?P<module>[\w.]+)[^\n]*?because of the following error"
        r"|Could not import module ['\"](?P<other>\w+)['\"]\. Are this object's requirements defined correctly",
        wrapper,
    ),
)
SIGNS: tuple[Sign, ...] = tuple(Sign(re.compile(pattern), judge) for pattern, judge in _SENTENCES)

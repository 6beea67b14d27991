"""Op env_look: everything that says what a Python environment is, in one answer. Facts, no judgement.

Rule: nothing of the environment is imported. A virtual environment tells of itself in pyvenv.cfg; another Python is
asked where its folders are, isolated and without its site module.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time

from . import env_dists, env_files, env_libraries
from .channel import Channel
from .driver import driver_version
from .errors import OpError
from .regular import read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List

    Facts = Dict[str, Any]

ASK_DEADLINE_S = 20.0
DEADLINE_S = 120.0
MAX_BYTES = 64 << 30
MODES = ("names", "newer", "all")
VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH", "LD_PRELOAD")
OF_THE_SYSTEM = "/usr/lib/python3/dist-packages"
QUESTION = """
import json, sys, sysconfig
print(json.dumps([sys.version.split()[0], sys.prefix, sys.base_prefix, [path for path in sys.path if path],
                  sysconfig.get_paths()['purelib'], sysconfig.get_paths()['platlib'], sysconfig.get_paths()['stdlib']]))
"""


def env_look(params: Facts, body: bytes, channel: Channel) -> Facts:
    """python: the interpreter; mode: names (no file of a package is looked at), newer (sizes of all, hashes of
    those that are newer than their RECORD), all (hashes of all); variables: what the training's environment adds;
    run_folder: its working folder or None; deadline_s, max_bytes: of hashing.

    {python, sites: [env_dists.look_at], user_site, path_folders, shadows, variables, machine, torch, libraries,
    shared, files, loose, took_s}; what the mode leaves out is None. Raises OpError("missing").
    """
    began = time.monotonic()
    mode = str(params.get("mode") or "newer")
    if mode not in MODES:
        raise OpError("bad_request", "mode is one of %s" % ", ".join(MODES))
    variables = _variables(dict(params.get("variables") or {}))
    python = find_python(str(params["python"]), variables)
    sites = [env_dists.look_at(folder) for folder in python["site_folders"]]
    packages = [package for site in sites for package in site["packages"]]
    before = [folder for folder in variables.get("PYTHONPATH", "").split(":") if folder]
    run_folder = params.get("run_folder")
    answer: Facts = {
        "python": python,
        "sites": sites,
        "path_folders": [_path_folder(folder, python["site_folders"]) for folder in before],
        "shadows": _shadows(([str(run_folder)] if run_folder else []) + before, python, sites),
        "variables": variables,
        "machine": _machine(),
        "torch": _torch(python["site_folders"]),
        "libraries": None,
        "shared": None,
        "files": None,
        "loose": None,
    }
    if mode != "names":
        # What the system's own installer brought is its matter, and its RECORDs are not kept true.
        own = [package for package in packages if os.path.dirname(str(package["info"])) != OF_THE_SYSTEM]
        owners = env_files.Owners(own)
        answer["shared"] = owners.shared()
        answer["loose"] = _loose(python, owners, channel)
        if answer["torch"] is not None:
            path = variables.get("LD_LIBRARY_PATH", "")
            answer["libraries"] = _libraries(answer["torch"]["path"], python, path, owners)
        deadline_s = float(params.get("deadline_s") or DEADLINE_S)
        max_bytes = int(params.get("max_bytes") or MAX_BYTES)
        answer["files"] = env_files.verify(owners, mode, deadline_s, max_bytes, channel.check)
    answer["took_s"] = round(time.monotonic() - began, 3)
    return answer


def _loose(python: Facts, owners: env_files.Owners, channel: Channel) -> List[str]:
    """Files of its own folders that no package brought."""
    return [
        path
        for folder in python["site_folders"]
        if folder not in python["system_folders"] and folder != OF_THE_SYSTEM
        for path in env_files.loose_files(folder, owners, channel.check)
    ][: env_files.MAX_TOLD]


def _libraries(torch: str, python: Facts, path: str, owners: env_files.Owners) -> Facts:
    """What torch loads, and whose each is. torch: its folder; path: LD_LIBRARY_PATH."""
    libraries = env_libraries.torch_libraries(torch, python["site_folders"], path)
    for entry in libraries["needed"].values():
        entry["packages"] = sorted(set(owners.of.get(str(entry["path"]), [])))
    return libraries


def find_python(wanted: str, variables: Dict[str, str]) -> Facts:
    """{path, version, prefix, base, venv, system_site, site_folders, system_folders, user_site, stdlib}.
    Raises OpError."""
    path = shutil.which(wanted)
    if path is None:
        raise OpError("missing", "there is no %s" % wanted)
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    config = read_config(os.path.join(prefix, "pyvenv.cfg"))
    found = _venv(path, prefix, config) if config else _asked(path)
    user = _user_site(found, variables)
    found["user_site"] = user
    if user is not None:
        found["site_folders"] = [user, *found["site_folders"]]
    return found


def read_config(path: str) -> Dict[str, str]:
    """pyvenv.cfg; empty when there is none."""
    try:
        text = read_regular(path, 64 * 1024).decode("utf-8", "replace")
        pairs = [line.partition("=") for line in text.splitlines()]
    except OSError:
        return {}
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _venv(path: str, prefix: str, config: Dict[str, str]) -> Facts:
    version = config.get("version") or config.get("version_info") or ""
    match = re.match(r"(\d+)\.(\d+)(?:\.\d+)?", version)
    if match is None:
        return _asked(path)
    short = "python%s.%s" % (match.group(1), match.group(2))
    base = os.path.dirname(os.path.realpath(config.get("home", ""))) if config.get("home") else ""
    folders: List[str] = []
    for library in ("lib", "lib64"):  # mostly one is a link to the other, but not always
        folder = os.path.join(prefix, library, short, "site-packages")
        if os.path.isdir(folder) and os.path.realpath(folder) not in [os.path.realpath(one) for one in folders]:
            folders.append(folder)
    system_site = config.get("include-system-site-packages", "false").lower() == "true"
    system: List[str] = []
    if system_site:
        try:
            system = list(_asked(os.path.join(config.get("home", ""), "python3"))["site_folders"])
        except OpError:
            system = []  # the Python that it was made with is gone: preflight finds that it does not start
    return {
        "path": path,
        "version": match.group(0),
        "prefix": prefix,
        "base": base,
        "venv": True,
        "system_site": system_site,
        "site_folders": [*folders, *system],
        "system_folders": system,
        "stdlib": os.path.join(base, "lib", short) if base else None,
    }


def _asked(path: str) -> Facts:
    from .commands import ask

    code, out, error = ask([path, "-I", "-S", "-c", QUESTION], ASK_DEADLINE_S)
    try:
        version, prefix, base, _, purelib, platlib, stdlib = json.loads(out) if code == 0 else []
    except ValueError as wrong:
        raise OpError("missing", "%s does not say where its packages are" % path, error or out) from wrong
    short = "python" + ".".join(version.split(".")[:2])
    known = [purelib, platlib, "/usr/local/lib/%s/dist-packages" % short, "/usr/lib/python3/dist-packages"]
    folders: List[str] = []
    for folder in known:
        if os.path.isdir(folder) and os.path.realpath(folder) not in [os.path.realpath(one) for one in folders]:
            folders.append(folder)
    return {
        "path": path,
        "version": version,
        "prefix": prefix,
        "base": base,
        "venv": prefix != base,
        "system_site": False,
        "site_folders": folders,
        "system_folders": [],
        "stdlib": stdlib,
    }


def _user_site(python: Facts, variables: Dict[str, str]) -> str | None:
    """The folder of this user's own packages, where the interpreter would look into it and it is there."""
    if variables.get("PYTHONNOUSERSITE") or (python["venv"] and not python["system_site"]):
        return None
    home = variables.get("PYTHONUSERBASE") or os.path.join(os.path.expanduser("~"), ".local")
    short = "python" + ".".join(str(python["version"]).split(".")[:2])
    folder = os.path.join(home, "lib", short, "site-packages")
    return folder if os.path.isdir(folder) else None


def _variables(given: Facts) -> Dict[str, str]:
    """As the training gets them: its own win over those of this login."""
    told = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    told.update({name: str(value) for name, value in given.items() if name in VARIABLES})
    return {name: value for name, value in told.items() if value}


def _path_folder(folder: str, sites: List[str]) -> Facts:
    modules = sorted(env_dists.top_modules(folder))
    real = [os.path.realpath(site) for site in sites]
    return {"folder": folder, "modules": modules[:50], "is_site": os.path.realpath(folder) in real}


def _shadows(folders: List[str], python: Facts, sites: List[Facts]) -> List[Facts]:
    """Modules that come from an earlier folder than the one they are thought to be in: {module, path, hides}."""
    installed: Dict[str, str] = {}
    for site in sites:
        for module, path in env_dists.top_modules(str(site["folder"])).items():
            installed.setdefault(module, path)
    standard = env_dists.top_modules(str(python["stdlib"])) if python["stdlib"] else {}
    real = [os.path.realpath(str(site["folder"])) for site in sites]
    found = []
    for folder in folders:
        if os.path.realpath(folder) in real:
            continue
        for module, path in sorted(env_dists.top_modules(folder).items()):
            hides = "standard library" if module in standard else installed.get(module)
            if hides:
                found.append({"module": module, "path": path, "hides": hides})
    return found[:100]


def _torch(sites: List[str]) -> Facts | None:
    from .packages import torch_facts

    for folder in sites:
        if os.path.isfile(os.path.join(folder, "torch", "version.py")):
            try:
                return dict(torch_facts([folder]) or {}, path=os.path.join(folder, "torch"))
            except (OSError, SyntaxError, ValueError):
                return {"version": None, "path": os.path.join(folder, "torch")}
    return None


def _machine() -> Facts:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        libc = None
    return {"libc": libc, "architecture": os.uname().machine, "driver": driver_version()}

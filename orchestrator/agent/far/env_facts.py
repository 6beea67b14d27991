"""Op env_facts: what decides which wheels fit an interpreter over here. Facts, no judgement."""

from __future__ import annotations

import json
import shutil

from .channel import Channel
from .commands import ask

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

DEADLINE_S = 20.0

QUESTION = """
import json, os, platform, sys, sysconfig
number = sys.implementation.version
version = '%d.%d.%d' % number[:3]
if number.releaselevel != 'final':
    version += number.releaselevel[0] + str(number.serial)
try:
    libc = os.confstr('CS_GNU_LIBC_VERSION')
except (AttributeError, OSError, ValueError):
    libc = None
print(json.dumps({
    'executable': sys.executable,
    'version': '%d.%d.%d' % sys.version_info[:3],
    'platform': sysconfig.get_platform(),
    'libc': libc,
    'free_threaded': bool(sysconfig.get_config_var('Py_GIL_DISABLED')),
    'markers': {
        'implementation_name': sys.implementation.name,
        'implementation_version': version,
        'os_name': os.name,
        'platform_machine': platform.machine(),
        'platform_python_implementation': platform.python_implementation(),
        'platform_release': platform.release(),
        'platform_system': platform.system(),
        'platform_version': platform.version(),
        'python_full_version': platform.python_version(),
        'python_version': '.'.join(platform.python_version_tuple()[:2]),
        'sys_platform': sys.platform,
    },
}))
"""
"""The markers are those of PEP 508, in its words."""


def env_facts(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """pythons: programs. {"pythons": {program: what QUESTION prints, or {"error"}}}."""
    return {"pythons": {str(wanted): _facts(str(wanted)) for wanted in params["pythons"]}}


def _facts(wanted: str) -> Dict[str, Any]:
    path = shutil.which(wanted)
    if path is None:
        return {"error": "there is no %s" % wanted}
    code, out, error = ask([path, "-I", "-c", QUESTION], DEADLINE_S)
    try:
        facts = json.loads(out) if code == 0 else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        return {"error": error or "%s: exit code %s" % (path, code)}
    return facts

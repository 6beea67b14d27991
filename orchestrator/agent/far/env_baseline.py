"""Op env_baseline: what is kept of an environment that somebody else made, to compare with later.

<base>/baselines/<hash of the prefix>.json     replaced by rename
"""

from __future__ import annotations

import hashlib
import os
import time

from .channel import Channel
from .env_store import read_json, write_json
from .errors import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

FOLDER = "baselines"
SCHEMA = 1


def env_baseline(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, prefix; record: kept as it is, with schema, prefix and at; without it nothing is written.

    {"path", "baseline": what is kept now, or None}. Raises OpError("io")."""
    prefix = str(params["prefix"])
    name = hashlib.sha256(os.path.realpath(prefix).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = os.path.join(str(params["base"]), FOLDER, name + ".json")
    record = params.get("record")
    if record is not None:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_json(path, dict(record, schema=SCHEMA, prefix=prefix, at=time.time()))
        except OSError as error:
            raise OpError("io", "the baseline could not be kept: %s" % error) from error
    return {"path": path, "baseline": read_json(path)}

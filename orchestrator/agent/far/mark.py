"""Op mark_run: what a person thinks of a run, beside its record: mark.json.

Rule: the newest mark counts; the journal keeps all of them.
"""

from __future__ import annotations

import os
import time
from typing import Any

from . import journal, records
from .errors import OpError
from .records import Record

MARK = "mark.json"
VERDICTS = ("good", "bad")


def mark_run(params: Record, body: bytes, channel: Any) -> Record:
    """base, run_id, verdict (good, bad), note (text or None), who (`ann@laptop`). Answers the mark.

    Raises OpError: missing, bad_request, io."""
    base = records.base_folder(params)
    folder = records.run_folder(base, params.get("run_id"))
    verdict, note, who = params.get("verdict"), params.get("note"), params.get("who")
    if verdict not in VERDICTS:
        raise OpError("bad_request", "a run is marked %s, not %r" % (" or ".join(VERDICTS), verdict))
    if not os.path.isdir(folder):
        raise OpError("missing", "there is no run %s" % params.get("run_id"), folder)
    mark = {"verdict": verdict, "note": note or None, "by": who, "at": time.time()}
    detail = {"run_id": params["run_id"], "verdict": verdict, "note": note or ""}
    try:
        with journal.begin(base, "mark", str(who) if who else None, detail):
            records.write_record(folder, MARK, mark)
    except OSError as error:
        raise OpError("io", "run %s could not be marked: %s" % (params["run_id"], error), folder) from error
    return mark

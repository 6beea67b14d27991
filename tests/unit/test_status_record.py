"""What `orch status --json` says. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from orchestrator.reports.status import StatusReport, status_record

REPORT = StatusReport(target="ct200", label="ct200", now_s=1.5)


def test_json_holds_no_word_that_strict_readers_refuse() -> None:
    record = status_record(replace(REPORT, now_s=math.nan, disk_free_bytes=7))
    assert json.loads(json.dumps(record, allow_nan=False))["now_s"] is None
    assert record["disk_free_bytes"] == 7

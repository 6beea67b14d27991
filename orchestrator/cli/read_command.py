"""orch read: what one captured output says, by the parsers that status uses. Connects to nothing."""

from __future__ import annotations

import argparse
import json

from orchestrator.cli.output import Output
from orchestrator.errors import EXIT_NOTHING_FOUND
from orchestrator.operations.captured import LargeLog, is_large, read_captured
from orchestrator.operations.readers import READERS, read_as
from orchestrator.probes.log_reading import read_log_pieces
from orchestrator.reports.read import is_empty, read_record, render_reading


def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.kind not in READERS:
        read_as(arguments.kind, "")  # says so, before a file is looked for
    fields = None if arguments.fields is None else arguments.fields.split(",")
    if arguments.kind == "log" and fields is None and is_large(arguments.file):
        log = LargeLog(arguments.file)
        reading = read_log_pieces(log.pieces())
        record = read_record(arguments.kind, None, reading, characters=log.characters)
    else:
        text = read_captured(arguments.file)
        record = read_record(arguments.kind, text, read_as(arguments.kind, text, fields))
    output.result(json.dumps(record, indent=1) if arguments.json else render_reading(record))
    return EXIT_NOTHING_FOUND if is_empty(record) else 0

"""Options of `orch publish`."""

from __future__ import annotations

import argparse

from orchestrator.cli.parser_words import as_json, count, target


def add_publish(publish: argparse.ArgumentParser) -> None:
    publish.add_argument(
        "run",
        nargs="?",
        metavar="RUN[:STEP]",
        help="a run's exported drafter, or one of its checkpoints (default: the last run's drafter); "
        "with --rollback: a publication or its run",
    )
    publish.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="a folder here, TARGET:/folder, or s3://bucket/prefix",
    )
    publish.add_argument("--keep", type=count, default=5, metavar="N", help="how many stay (default: 5)")
    publish.add_argument("--profile", metavar="NAME", help="of the AWS configuration: credentials, endpoint, region")
    what = publish.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", dest="listing", help="what is published there")
    what.add_argument(
        "--rollback", action="store_true", help="make the publication before current again, or a named one"
    )
    target(publish)
    as_json(publish)

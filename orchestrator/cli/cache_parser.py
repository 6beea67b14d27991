"""Options of `orch cache`."""

from __future__ import annotations

from orchestrator.cli.parser_words import Parser, as_json, count, gigabytes, selectors, target, verbs_of


def add_cache(cache: Parser, common: Parser) -> None:
    verb = verbs_of(cache, "cache_verb", common)

    show = verb("show", "size, kinds, devices, age, users; beside its snapshot and the last good run")
    listing = verb("list", "the snapshots: size, when, of which runs, complete or not")
    for read in (show, listing):
        selectors(read)
    save = verb("save", "keep a copy of the live cache under a name; refused while a run is live")
    save.add_argument("name", metavar="NAME", help="letters, digits, dots, dashes, underscores")
    verify = verb("verify", "read every file of the snapshots and compare; exit code 14: one is damaged")
    verify.add_argument("names", nargs="*", metavar="NAME", help="or its beginning (default: all)")
    seed = verb("seed", "make the live cache from a snapshot; refused where its entries cannot be found again")
    seed.add_argument("name", metavar="NAME|last-good", help="or the beginning of a name")
    seed.add_argument("--replace", action="store_true", help="keep what is there as a snapshot first")
    seed.add_argument(
        "--force", action="store_true", help="also where no look-up can hit: torch, triton, CUDA, Python or GPUs differ"
    )
    clear = verb("clear", "set the live cache aside as a snapshot; refused while a run is live")
    drop = verb("drop", "remove a snapshot, or the oldest ones")
    drop.add_argument("name", nargs="?", metavar="NAME")
    drop.add_argument("--keep", type=count, metavar="N", help="remove all but the newest N")
    drop.add_argument("--max-gb", type=gigabytes, metavar="GB", help="keep only the newest that fit into this together")
    drop.add_argument("--dry-run", action="store_true", help="with --keep or --max-gb: say which; change nothing")
    drop.add_argument("--force", action="store_true", help="also the one that goes with the last good run")
    fetch = verb("pull", "copy a snapshot to this machine; only what is missing here travels")
    push = verb("push", "copy a snapshot from this machine, or another target, to the target")
    for move in (fetch, push):
        move.add_argument("name", metavar="NAME|last-good", help="or the beginning of a name")
        move.add_argument("--as", dest="new_name", metavar="NAME", help="keep it under another name there")
    store = "below FOLDER/orch/caches/snapshots (default: in ~/.local/share)"
    fetch.add_argument("--to", metavar="FOLDER", help=f"keep it {store}")
    push.add_argument("--from", dest="source", metavar="TARGET|FOLDER", help=f"another target, or {store}")
    for local in (listing, verify, drop):
        local.add_argument(
            "--here",
            nargs="?",
            const="",
            metavar="FOLDER",
            help=f"the snapshots of this machine, {store}; FOLDER has a slash in it",
        )
    for one in (save, verify, seed, clear, drop, fetch, push):
        target(one)
    for any_verb in (show, listing, save, verify, seed, clear, drop, fetch, push):
        as_json(any_verb)

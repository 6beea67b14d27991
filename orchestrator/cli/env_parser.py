"""Options of `orch env`."""

from __future__ import annotations

from orchestrator.cli.parser_words import Parser, as_json, seconds, selectors, target, verbs_of


def add_env(env: Parser, common: Parser) -> None:
    verb = verbs_of(env, "env_verb", common)

    sync = verb("sync", "build what the inventory's locks say, and make it current")
    selectors(sync)
    sync.add_argument(
        "--purpose", action="append", default=[], metavar="NAME", help="only this environment, repeatable"
    )
    sync.add_argument("--wheels", metavar="FOLDER", help="take the wheels from here; fetch nothing")
    sync.add_argument(
        "--index", action="append", default=[], metavar="URL", help="in place of the inventory's indexes, repeatable"
    )
    sync.add_argument("--rebuild", action="store_true", help="build it once more beside the one that is there")
    sync.add_argument("--no-switch", action="store_true", help="only build; what is current stays so")
    sync.add_argument("--dry-run", action="store_true", help="say what would be built and sent; change nothing")
    listing = verb("list", "which environments there are, and which are current")
    selectors(listing)
    as_json(listing)
    check = verb("check", "compare the environment that the command runs in with its lock or its baseline")
    selectors(check)
    check.add_argument("--purpose", metavar="NAME", help="another one of those that orch made")
    check.add_argument("--python", metavar="PATH", help="another one: its interpreter on the target")
    check.add_argument("--quick", action="store_true", help="hash only the files that were written since")
    check.add_argument("--deadline", type=seconds, default=120.0, metavar="SECONDS", help="of hashing (default: 120)")
    as_json(check)
    baseline = verb("baseline", "record what an environment that orch did not make holds, to compare with later")
    baseline.add_argument("--python", metavar="PATH", help="its interpreter, in place of the payload's `python:`")
    target(baseline)
    use = verb("use", "make another environment current, for the next launch")
    use.add_argument("environment", metavar="ENVIRONMENT", help="its name, or the beginning")
    rollback = verb("rollback", "make the environment before current again")
    for switch in (use, rollback):
        switch.add_argument("--purpose", metavar="NAME", help="of which purpose, where there are several")
        target(switch)
    remove = verb("remove", "remove environments that are neither current nor in use by a run")
    remove.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help="their names, or the beginnings")
    remove.add_argument("--unused", action="store_true", help="all but the current ones and those before them")
    target(remove)

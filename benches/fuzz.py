"""Fuzz the readers of other programs' output, a minute each: python -m benches.fuzz [--seconds N] [KIND...]

Prints one line a reader and every failure with its input; exit code 1 when there was one.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.fuzz.harness import KEPT_BYTES, fuzz, growth_bytes, slow_repetitions
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    failed = False
    for name in arguments.kinds or TARGETS:
        target = TARGETS[name]
        outcome = fuzz(target, arguments.seconds, seed)
        tried, slow = slow_repetitions(target, arguments.seconds / 4, seed=seed)
        kept = growth_bytes(target, seed=seed)
        wrong = [*outcome.wrong, *slow, *([f"{kept} bytes stay behind"] if kept >= KEPT_BYTES else [])]
        print(f"{outcome.text(name)}; {tried} repetitions of 1 MB, {len(slow)} too slow; {kept} bytes kept", flush=True)
        for what in wrong:
            print(f"  {what}")
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

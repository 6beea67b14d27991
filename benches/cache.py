"""orch cache save, seed and push of 1 GB in 20,000 files, against cp -a and tar on the same disk.

python benches/cache.py [FOLDER [FILES]]     FOLDER: on the disk that is meant; 5 GB are written there and removed
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from compare import PROJECT, Case, command, measure, publish, table

FILES = int(sys.argv[2]) if sys.argv[2:] else 20_000
TOTAL_BYTES = FILES * 50_000
ROUNDS = 3
ORCH = [sys.executable, "-m", "orchestrator", "cache"]


class Places:
    """Two targets on this machine, `a` with a full cache and a snapshot of it, `b` with that snapshot pushed to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "inventory.yaml"
        self.live = folder / "a/orch/caches/live"
        self.copy = folder / "copy"
        hosts = {name: {"transport": "local", "root": str(folder / name)} for name in ("a", "b")}
        self.inventory.write_text(yaml.safe_dump({"hosts": hosts}))

    def argv(self, verb: str, *words: str) -> list[str]:
        return [*ORCH, verb, "-i", str(self.inventory), *words]

    def orch(self, verb: str, *words: str) -> dict[str, Any]:
        argv = self.argv(verb, *words, "--json")
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, check=True, stdin=subprocess.DEVNULL)
        record: dict[str, Any] = json.loads(done.stdout)
        return record

    def fresh(self) -> None:
        """Nothing of the round before, and nothing of it on its way to the disk."""
        for path in (self.copy, self.folder / "b/orch/caches/live", self.folder / "a/orch/caches/snapshots/round"):
            shutil.rmtree(path, ignore_errors=True)
        (self.folder / "b/orch/caches/seeded.json").unlink(missing_ok=True)
        os.sync()


def fill(live: Path) -> None:
    """Sizes as compile caches have them: most are small, a few are large. A folder for each one or two files."""
    generator = random.Random(7)
    sizes = [generator.lognormvariate(9.8, 1.3) for _ in range(FILES)]
    scale = TOTAL_BYTES / sum(sizes)
    block = generator.randbytes(1 << 22)
    for number, size in enumerate(sizes):
        top = f"triton/{number // 12}" if number % 4 == 3 else f"inductor/fxgraph/{number % 256:02x}/{number // 4}"
        folder = live / top
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"f{number}").open("wb") as stream:
            stream.write(number.to_bytes(8, "big"))
            left = max(0, int(size * scale) - 8)
            while left:
                at = generator.randrange(1 << 21)
                piece = block[at : at + min(left, 1 << 21)]
                stream.write(piece)
                left -= len(piece)


def pushes(places: Places) -> str:
    """The first one, the same again, and one in which a file is new: what each sends."""
    rows = ["| push | contents sent | bytes sent | of the snapshot |", "|---|---|---|---|"]

    def push(words: str, name: str, *more: str) -> None:
        told = places.orch("push", name, "--from", "a", "-t", "b", *more)
        share = told["bytes_sent"] / told["bytes"]
        rows.append(f"| {words} | {told['contents_sent']} | {told['bytes_sent']} | {share:.3%} |".replace("%", " %"))

    push("first", "kept")
    push("unchanged", "kept")
    push("unchanged, under another name", "kept", "--as", "renamed")
    changed = next((places.live / "triton").glob("*/f*"))
    changed.write_bytes(os.urandom(50_000))
    places.orch("save", "later", "-t", "a")
    push("one file of 50 kB is new", "later")
    return "\n".join(rows)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-cache-", dir=sys.argv[1] if sys.argv[1:] else None) as text:
        places = Places(Path(text))
        fill(places.live)
        places.orch("save", "kept", "-t", "a")
        moved = pushes(places)
        for name in ("kept", "later"):  # or the save of the rounds would only link
            places.orch("drop", name, "-t", "a", "--force")
        copy, live = places.copy, places.live
        sync = f"sync -f {copy}"
        tar = f"mkdir {copy} && tar -C {live} -cf - . | tar -C {copy} -xf - && {sync}"
        cases = [
            Case("cp -a", command(["sh", "-c", f"cp -a {live} {copy} && {sync}"]), places.fresh),
            Case("orch cache save", command(places.argv("save", "round", "-t", "a"), cwd=PROJECT), places.fresh),
            Case("tar to tar", command(["sh", "-c", tar]), places.fresh),
            Case("orch cache seed", command(places.argv("seed", "kept", "-t", "b"), cwd=PROJECT), places.fresh),
        ]
        samples = measure(cases, ROUNDS)
    baseline = {"orch cache save": "cp -a", "tar to tar": "cp -a", "orch cache seed": "cp -a"}
    aims = {"orch cache save": "at most 1.5 x", "orch cache seed": "at most 1.5 x"}
    body = (
        f"{FILES:,} files, {TOTAL_BYTES / 1e9:g} GB, on one disk; each case ends with all of it on the disk (`sync -f`)"
    )
    publish(
        "orch cache",
        " ".join(["python benches/cache.py", *sys.argv[1:]]),
        f"{body}\n\n{table(samples, baseline, aims)}\n\n{moved}",
    )


if __name__ == "__main__":
    main()

"""How long a look into an environment takes, on the machine that has it.   python benches/env_check.py [PYTHON]

Each look is a new Python, as the agent's is. Cold: the environment's files are taken out of the page cache before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compare import Case, command, measure, publish, table

LOOK = """
import json, sys
from orchestrator.agent.far import env_look
from orchestrator.agent.far.channel import Channel
answer = env_look.env_look({"python": sys.argv[1], "mode": sys.argv[2]}, b"", Channel(1, lambda header, body: None))
files = answer["files"] or {}
names = ("files", "hashed", "bytes_hashed", "not_hashed", "changed_files")
print(json.dumps({name: files.get(name) for name in names}))
"""


def evict(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main() -> None:
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    prefix = Path(python).parent.parent

    def look(mode: str) -> list[str]:
        return [sys.executable, "-c", LOOK, python, mode]

    cold = {"prepare": lambda: evict(prefix)}
    cases = [
        Case("python -c pass", command([sys.executable, "-c", "pass"])),
        Case("names (a launch), warm", command(look("names"))),
        Case("--quick, warm", command(look("newer"))),
        Case("all hashed, warm", command(look("all"))),
        Case("names (a launch), cold", command(look("names")), **cold),
        Case("--quick, cold", command(look("newer")), **cold),
        Case("all hashed, cold", command(look("all")), **cold),
    ]
    seconds = measure(cases, rounds=5)
    said = subprocess.run(look("all"), capture_output=True, text=True, check=True).stdout.strip()
    body = table(seconds, {}, {"names (a launch), warm": "under 1 s", "names (a launch), cold": "under 1 s"})
    publish("orch env check", "python benches/env_check.py PYTHON", f"The last look: {said}\n\n{body}")


if __name__ == "__main__":
    main()

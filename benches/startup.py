"""How long `orch --help` takes to start, against a bare python.   python benches/startup.py"""

from __future__ import annotations

import shutil
import sys

from compare import Case, command, measure, publish, table


def main() -> None:
    orch = shutil.which("orch")
    start = [orch] if orch else [sys.executable, "-m", "orchestrator"]
    cases = [
        Case("python -c pass", command([sys.executable, "-c", "pass"])),
        Case("orch --help", command([*start, "--help"])),
    ]
    seconds = measure(cases, rounds=30)
    body = table(seconds, {"orch --help": "python -c pass"}, {"orch --help": "at most 5 x"})
    publish("Start-up", "python benches/startup.py", body)


if __name__ == "__main__":
    main()

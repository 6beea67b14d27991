"""Makes runs in a folder, as large as real ones: python3 made_runs.py BASE COUNT PACKAGES. Standard library only."""

import hashlib
import json
import os
import sys

STARTED = 1_795_000_000.0


def fingerprint(run_id, number, packages):
    names = [f"package-{at:04d}" for at in range(packages)]
    identity = {
        "spec": {
            "payload": "dflash",
            "targets": 5,
            "drafters": 3,
            "settings": {"lr": 1e-4},
            "argv": ["python", "train.py"],
        },
        "release": {"tree_hash": "a" * 64, "git": {"commit": "b" * 40, "branch": "main", "dirty_files": []}},
        "packages": {name: f"1.{at % 7}.{number // 100}" for at, name in enumerate(names)},
        "builds": {name: hashlib.sha256(name.encode()).hexdigest() for name in names},
        "origins": {},
        "edited": {},
        "package_edits": {},
        "driver": {"version": "580.65.06"},
        "variables": {"values": {}, "hashed": {}, "key": "k"},
    }
    identity["release"]["listing"] = {f"file{at}.py": hashlib.sha256(b"%d" % at).hexdigest() for at in range(40)}
    return {"schema": "orch.fingerprint/2", "run_id": run_id, "identity": identity, "observed": {}, "unknown": {}}


def main(base, count, packages):
    for number in range(count):
        run_id = f"20261120-{number:06d}-aaaa"
        folder = os.path.join(base, "runs", run_id)
        os.makedirs(os.path.join(folder, "checkpoints", "step-700"), exist_ok=True)
        began = STARTED + number * 4000
        record = fingerprint(run_id, number, packages)
        spec = {
            "run_id": run_id,
            "created_at": began,
            "argv": ["python", "train.py"],
            "payload": "dflash",
            "targets": 5,
        }
        spec.update(drafters=3, settings={}, environment={}, launched_by="ann@laptop", release=f"{base}/releases/x")
        status = {"phase": "done", "step": 700, "total_steps": 700, "loss": 1.5, "tokens_per_s": 20000.0 + number % 50}
        brief = {"tree_hash": "a" * 64, "git": {"commit": "b" * 40, "branch": "main", "dirty": 0}, "cache_before": None}
        metrics = "".join(
            json.dumps({"step": at, "tokens_per_s": 2e4 + at, "fill": "x" * 200}) + "\n" for at in range(200)
        )
        texts = {
            "run.json": json.dumps(spec),
            "fingerprint.json": json.dumps(record, indent=1),
            "brief.json": json.dumps(brief),
            "wrapper.json": json.dumps({"run_id": run_id}),
            "exit.json": json.dumps({"run_id": run_id, "exit_code": 0, "started_at": began, "ended_at": began + 3600}),
            "status.json": json.dumps(status),
            "result.json": json.dumps({"acceptance_length": 3.5}),
            "runtime.json": json.dumps({"torch": "2.11.0", "compiler_settings": {}}),
            "metrics.jsonl": metrics,
            "run.log": "".join(f"step {at}/700 loss 1.5 20.1 Ktok/s\n" for at in range(700)),
            "checkpoints/step-700/_SUCCESS": "",
        }
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(text)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

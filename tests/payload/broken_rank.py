"""A rank with a fault in it, started in place of rank.py: BREAK names the role, its number and what goes wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

PAYLOAD = Path(__file__).resolve().parents[2] / "remote_payload"
sys.path.insert(0, str(PAYLOAD))

import rank  # noqa: E402

rank.end_with(int(sys.argv[3]))
role, index, fault = os.environ["BREAK"].split()
record = json.loads((Path(sys.argv[1]) / rank.JOB).read_text())["ranks"][int(sys.argv[2])]
if (record["role"], str(record["index"])) == (role, index):
    import dataclasses

    import handoff
    import workers

    if fault == "raises":
        real_batch = handoff.make_batch

        def make_batch(number, prepared, config, step):
            if step == 3:
                raise RuntimeError("the target broke at step 3")
            return real_batch(number, prepared, config, step)

        handoff.make_batch = make_batch
    else:
        real_loss = workers.step_loss

        def step_loss(batch, *rest):
            outcome = real_loss(batch, *rest)
            return outcome if batch.step < 3 else dataclasses.replace(outcome, loss=outcome.loss * float("nan"))

        workers.step_loss = step_loss

os._exit(rank.main(sys.argv[1:]))

"""The nightly retrain as a script: python examples/nightly.py INVENTORY WHERE [MESSENGER ...]

WHERE: a folder, TARGET:/folder or s3://bucket/prefix. MESSENGER: a command that is told how it went, on its stdin.
`orch play playbooks/nightly.yaml` does the same and goes on where it was cut off; this one begins anew.
"""

import asyncio
import sys
from contextlib import suppress

from orchestrator.api import Orch, notify_all, tokens_per_s
from orchestrator.errors import NotAsWantedError, OrchError, PreflightError, UsageError

LEAST_OF_LAST_GOOD = 0.85
TAU_MAY_DROP = 0.05


async def retrain(box: Orch, where: str) -> str:
    await box.deploy()
    with suppress(UsageError, PreflightError):  # there is none, or it does not fit: the run compiles for itself
        await box.seed_cache("last-good")
    run_id = (await box.launch()).run_id  # BusyError while another run is live
    good = await box.last_good_rate(before=run_id)
    look = await box.wait(run_id, timeout_s=20 * 3600)
    rate = tokens_per_s(look)
    if good and rate and rate < LEAST_OF_LAST_GOOD * good.tokens_per_s:
        raise NotAsWantedError(f"{rate:.0f} tokens/s, run {good.run_id} had {good.tokens_per_s:.0f}")
    result = look.run.result or {}
    tau, before = result.get("acceptance_length"), await box.published(where)
    if tau is None or result.get("lossless") is not True:
        raise NotAsWantedError(f"run {run_id}: tau {tau}, lossless {result.get('lossless')}")
    if before and before.acceptance_length and tau < before.acceptance_length - TAU_MAY_DROP:
        raise NotAsWantedError(f"run {run_id}: tau {tau:.2f}, the published one has {before.acceptance_length:.2f}")
    await box.publish(run_id, where)
    with suppress(OrchError):  # nothing was compiled, say: it is published all the same
        await box.save_cache(f"nightly-{run_id}")
    return f"run {run_id} is published: tau {tau:.2f}"


async def main(inventory: str, where: str, *messenger: str) -> int:
    try:
        text, code = await retrain(Orch(inventory=inventory), where), 0
    except OrchError as error:
        said = (f"not published: {error.what}", error.evidence, error.way_out)
        text, code = "\n".join(filter(None, said)), error.exit_code
    told = await notify_all(text, command=messenger or None, outcome="failed" if code else "done")
    print(text, *told.warnings, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(__doc__ if len(sys.argv) < 3 else asyncio.run(main(*sys.argv[1:])))

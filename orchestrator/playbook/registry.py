"""Operation, as it is written in a playbook -> what does it."""

from __future__ import annotations

from orchestrator.playbook import steps_gate, steps_look, steps_publish, steps_run, steps_target
from orchestrator.playbook.doing import Step

DOING: dict[str, Step] = {
    "deploy": steps_target.deploy,
    "env sync": steps_target.env_sync,
    "env check": steps_target.env_check,
    "cache seed": steps_target.cache_seed,
    "cache save": steps_target.cache_save,
    "warmup": steps_run.warmup,
    "launch": steps_run.launch,
    "stop": steps_target.stop,
    "reset": steps_target.reset,
    "status": steps_look.status,
    "doctor": steps_look.doctor,
    "diff": steps_target.diff,
    "pull": steps_target.pull,
    "expect": steps_run.expect,
    "wait": steps_run.wait,
    "evaluate": steps_run.evaluate,
    "gate": steps_gate.gate,
    "publish": steps_publish.publish,
    "notify": steps_publish.notify,
    "run": steps_target.run,
}

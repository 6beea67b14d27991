"""What a step will do, in a sentence: what `--dry-run` prints.

Rule: pure; what only the play itself finds out stays `${name}`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from orchestrator.inventory.model import Target
from orchestrator.inventory.schema import Entry
from orchestrator.playbook import schema
from orchestrator.playbook.steps_look import demands


def will(options: Entry, target: Target) -> str:
    """options: of the step; target: the first of its targets."""
    match options:
        case schema.DeployOptions():
            folder = target.payload.folder.name if target.payload else "its payload"
            return f"ship {folder}" + (f" of commit {options.ref}" if options.ref else "") + " and switch to it"
        case schema.EnvSyncOptions():
            return "build what is missing of " + (", ".join(options.purposes) or "its environments")
        case schema.EnvCheckOptions():
            return f"compare {options.purpose or 'its environment'} with what it should be ({options.mode})"
        case schema.LaunchOptions():
            return _launch(options)
        case schema.WarmupOptions():
            return "compile what the run will ask for, and prove it" + _settings(options.settings)
        case schema.StatusOptions():
            return "demand: " + ", ".join(demands(options)) if any(True for _ in demands(options)) else "look"
        case schema.DoctorOptions():
            return f"say what is wrong, no finding above {options.no_finding_above}"
        case schema.StopOptions():
            which = "the run of this play, if it lives" if options.what == "run of the play" else options.what
            return f"stop {which}" + (", by force when it does not" if options.kill else "")
        case schema.DiffOptions():
            return f"compare {options.a} with {options.b}" + ("; different fails" * (options.different == "fail"))
        case schema.PullOptions():
            return f"fetch run {options.run or '${run_id}'} to {options.to or 'runs/<run id>'}"
    return _more(options)


def _launch(options: schema.LaunchOptions) -> str:
    return "start a run" + (f" from {options.resume}" if options.resume else "") + _settings(options.settings)


def _settings(settings: Mapping[str, object]) -> str:
    return "".join(f", {name}={value}" for name, value in settings.items())


def _more(options: Entry) -> str:
    match options:
        case schema.CacheSeedOptions():
            parts = [f"make the live cache from {options.name}"]
            parts += ["keep what is there first"] * options.replace + ["forced"] * options.force
            parts += ["or go on without"] * (options.without == "go on")
            return ", ".join(parts)
        case schema.CacheSaveOptions():
            return f"keep the live cache as {options.name}"
        case schema.ResetOptions():
            parts = ["end what this target left on its GPUs"] * options.kill_gpus
            parts += ["set the cache aside"] * options.clear_cache
            parts += [f"seed it from {options.seed}"] if options.seed else []
            return ", ".join(parts)
        case schema.ExpectOptions():
            return ", ".join(_expected(options))
        case schema.WaitOptions():
            return f"until the run is at step {options.step}" if options.step else f"until {options.until}"
        case schema.RunOptions():
            where = "here: " if options.where == "controller" else ""
            return where + shlex.join(options.argv)
    return _at_the_end(options)


def _expected(options: schema.ExpectOptions) -> list[str]:
    parts = []
    if options.percent_of_last_good:
        parts.append(f"at least {options.percent_of_last_good:g} % of the last good rate within {options.within}")
    if options.tokens_per_s:
        parts.append(f"at least {options.tokens_per_s:g} tokens/s within {options.within}")
    if options.no_finding_above:
        parts.append(f"no finding above {options.no_finding_above}")
    return parts


def _at_the_end(options: Entry) -> str:
    match options:
        case schema.EvaluateOptions():
            if options.read == "result":
                return "read tau from the run's result"
            judged = options.checkpoint or "${run_id}"
            return f"evaluate {judged} in a run of its own{_settings(options.settings)}"
        case schema.GateOptions():
            parts = [f"tau no more than {options.tau_drop:g} below the published one"]
            parts += [f"tau at least {options.tau_at_least:g}"] if options.tau_at_least else []
            parts += ["lossless"] * options.lossless
            return ", ".join(parts)
        case schema.PublishOptions():
            return f"publish to {options.to}, keep the last {options.keep}"
        case schema.NotifyOptions():
            return (
                f"tell {shlex.join(options.command)}" if options.command else f"tell the webhook in {options.webhook}"
            )
    return ""


def settings_words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())

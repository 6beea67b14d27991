"""Steps after the training: make its drafter the published one, and tell somebody."""

from __future__ import annotations

from orchestrator.errors import UsageError
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.steps_gate import let_through

TOLD = ("outcome", "failed_step", "why", "run_id", "tau", "playbook", "target")


async def publish(at: At, options: schema.PublishOptions) -> Done:
    from orchestrator.operations.publish import publish as operation
    from orchestrator.operations.where import parse_where
    from orchestrator.reports.publish import render_published

    wanted = options.what or at.known.get("evaluated_run") or at.run_id
    if not isinstance(wanted, str):
        raise UsageError("publish: it has no `what:`, and no `launch` step came before it", way_out="what: RUN")
    where = parse_where(options.to, at.inventory)
    instead_of = let_through(at.known, wanted, where.text)
    report = await operation(at.target, wanted, where, keep=options.keep, only_instead_of=[instead_of], trace=at.trace)
    return Done(render_published(report), {"published": report.tree_hash}, warning=report.note)


async def notify(at: At, options: schema.NotifyOptions) -> Done:
    from orchestrator.operations.notify import Message
    from orchestrator.operations.notify import notify as operation

    facts = {name: at.known.get(name) for name in TOLD}
    message = Message(options.text, {**facts, "play": at.play_id})
    told = await operation(message, webhook=options.webhook, command=options.command)
    return Done("; ".join(told.said) or "nobody was told", warning="; ".join(told.warnings))

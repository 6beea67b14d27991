"""Save, verify, seed from and drop snapshots of a target's compile cache; clear it."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import PreflightError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.snapshots import (
    LAST_GOOD,
    Seed,
    Snapshots,
    choose_dropped,
    choose_seed,
    choose_snapshot,
    parse_snapshots,
    to_drop,
)
from orchestrator.operations.cache import folders_of
from orchestrator.operations.identity import ask_identity
from orchestrator.operations.ledger import ask_good_runs
from orchestrator.operations.seeding import COPY_LIMIT_S, make_seed, plan_seed, require_fit, said
from orchestrator.operations.session import agent_and_config, agent_session, take_lease, who_asks
from orchestrator.reports.cache import ClearedReport, SavedReport, SeededReport, VerifyReport
from orchestrator.transport.tracing import Trace


async def save_cache(target: Target, name: str, *, trace: Trace | None = None) -> SavedReport:
    """Raises BusyError, PreflightError (the name is taken, a folder is unfit, the disk is full), UsageError (the name,
    or an empty cache); then nothing was kept."""
    if name == LAST_GOOD:
        raise UsageError(
            f"a snapshot cannot be named {LAST_GOOD}: that means whichever goes with the last good run",
            way_out="orch cache save NAME",
        )
    async with agent_and_config(target, trace) as (session, config):
        await take_lease(session, target)
        identity = None
        if target.payload is not None:
            identity = (await ask_identity(session, target, target.payload, config)).get("identity")
        try:
            reply = await session.request(
                "cache_save",
                base=target.base,
                name=name,
                folders=folders_of(target),
                who=who_asks(),
                identity=identity,
                timeout_s=COPY_LIMIT_S,
            )
        except AgentOpError as error:
            if error.kind == "missing":
                way_out = "orch warmup     compiles what a run asks for (without a GPU, nothing)"
                raise UsageError(error.what, way_out=way_out) from error
            raise said(error, target) from error
    told = reply.header
    return SavedReport(
        target.name, target.label, told["snapshot"], told["bytes"], told["files"], told["linked"], tuple(told["odd"])
    )


async def clear_cache(target: Target, *, trace: Trace | None = None) -> ClearedReport:
    """Set aside as a snapshot. Raises BusyError, PreflightError (a folder is unfit)."""
    async with agent_session(target, trace) as session:
        await take_lease(session, target)
        try:
            reply = await session.request(
                "cache_clear",
                base=target.base,
                folders=folders_of(target),
                who=who_asks(),
                why="clear",
                timeout_s=COPY_LIMIT_S,
            )
        except AgentOpError as error:
            raise said(error, target) from error
    told = reply.header
    return ClearedReport(
        target.name,
        target.label,
        told["snapshot"],
        told["bytes"],
        told["files"],
        tuple(told["finished"]),
        tuple(told["odd"]),
        tuple(told["kept"]),
    )


async def seed_cache(
    target: Target, wanted: str, *, replace: bool, force: bool, trace: Trace | None = None
) -> SeededReport:
    """wanted: a name, its beginning, or last-good; replace: what is there is set aside first; force: also where no
    look-up can hit. Raises UsageError, BusyError, PreflightError naming the fields that differ; then the cache is as it
    was."""
    async with agent_and_config(target, trace) as (session, config):
        await take_lease(session, target)
        plan = await plan_seed(session, target, wanted, config)
        if not force:
            require_fit(target, plan, f"orch cache seed {plan.seed.name} --force")
        return await make_seed(session, target, plan, replace=replace)


async def verify_snapshots(target: Target, wanted: Sequence[str], *, trace: Trace | None = None) -> VerifyReport:
    """wanted: names or their beginnings; none: all. Raises UsageError."""
    async with agent_session(target, trace) as session:
        found = await list_of(session, target)
        names = [snapshot.name for snapshot in found.kept]
        broken = list(found.broken)
        if wanted:
            broken = [name for name in wanted if name in found.broken]
            names = [choose_snapshot(name, found) for name in wanted if name not in found.broken]
        damaged: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(names):
            try:
                reply = await session.request("snapshot_verify", base=target.base, name=name, timeout_s=COPY_LIMIT_S)
                damaged[name] = tuple(reply.header["damaged"])
            except AgentOpError as error:
                if error.kind != "damaged":
                    raise
                broken.append(name)
    incomplete = () if wanted else (*found.unfinished, *found.unsaved, *found.arriving)
    return VerifyReport(target.name, target.label, damaged, tuple(broken), incomplete)


async def drop_snapshot(target: Target, wanted: str, *, force: bool, trace: Trace | None = None) -> str:
    """The name of what is gone. Raises UsageError, PreflightError (it goes with the last good run, and not force)."""
    async with agent_session(target, trace) as session:
        found = await list_of(session, target)
        name = choose_dropped(wanted, found)
        if not force:
            await _require_dispensable(session, target, found, name)
        await take_lease(session, target)
        await session.request("cache_drop", base=target.base, name=name, who=who_asks(), timeout_s=COPY_LIMIT_S)
    return name


async def drop_older(
    target: Target, *, keep: int | None, max_bytes: int | None, dry_run: bool, trace: Trace | None = None
) -> tuple[str, ...]:
    """Names of what is gone, or of a dry run would be: see `to_drop`. What goes with the last good run stays, and what
    the live cache was made from."""
    async with agent_session(target, trace) as session:
        found = await list_of(session, target)
        good = await _last_good_of(session, target, found)
        spared = frozenset(filter(None, (good.name if good else None, found.seeded_from)))
        names = to_drop(found, spared, keep=keep, max_bytes=max_bytes)
        if names and not dry_run:
            await take_lease(session, target)
            for name in names:
                await session.request("cache_drop", base=target.base, name=name, who=who_asks(), timeout_s=COPY_LIMIT_S)
    return names


async def _last_good_of(session: AgentSession, target: Target, found: Snapshots) -> Seed | None:
    good = await ask_good_runs(session, target)
    try:
        return choose_seed(LAST_GOOD, found, good)
    except UsageError:
        return None


async def _require_dispensable(session: AgentSession, target: Target, found: Snapshots, name: str) -> None:
    seed = await _last_good_of(session, target, found)
    if seed is not None and seed.name == name:
        raise PreflightError(
            f"snapshot {name} of {target.name} goes with the last good run; nothing was dropped",
            evidence=seed.why,
            way_out=f"orch cache drop {name} --force     if it may go all the same",
        )


async def list_of(session: AgentSession, target: Target) -> Snapshots:
    return parse_snapshots((await session.request("list_snapshots", base=target.base)).header)

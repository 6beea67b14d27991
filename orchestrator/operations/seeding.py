"""Whether a snapshot of the compile cache fits a target, and the live cache made from it.

Rule: `cache seed`, `reset --seed` and `launch --seed` ask here; a seed that cannot serve is refused by the same fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import BusyError, PreflightError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.cache_enough import devices_needed, parse_plan
from orchestrator.ledger.cache_fit import Fit, judge, parse_maker
from orchestrator.ledger.runs import Good
from orchestrator.ledger.snapshots import LAST_GOOD, Seed, Snapshots, choose_seed, parse_snapshots
from orchestrator.operations.cache import folders_of, plan_key
from orchestrator.operations.identity import ask_identity
from orchestrator.operations.ledger import ask_good_runs
from orchestrator.operations.session import who_asks
from orchestrator.probes.cache_census import Devices
from orchestrator.reports.cache import SeededReport

COPY_LIMIT_S = 3600.0
"""A large cache is copied and hashed."""


class NotEmptyError(PreflightError):
    """There is a cache, and nobody said that it may be replaced."""


@dataclass(frozen=True)
class SeedPlan:
    seed: Seed
    fit: Fit
    live_from: str | None
    """The snapshot that the live cache was made from."""


async def plan_seed(
    session: AgentSession,
    target: Target,
    wanted: str,
    config: Awaitable[dict[str, str] | None] | None = None,
    settings: Mapping[str, object] | None = None,
) -> SeedPlan:
    """Looks only. wanted: a name, its beginning, or last-good; config: of the container; settings: of the launch that
    is to follow. Raises UsageError."""
    found = parse_snapshots((await session.request("list_snapshots", base=target.base)).header)
    good = await ask_good_runs(session, target)
    seed = choose_seed(wanted, found, good)
    identity = None
    if target.payload is not None:
        told = await ask_identity(session, target, target.payload, config, settings=settings)
        identity = told.get("identity")
    like = plan_key(target, settings or {})
    told_now = (await session.request("cache_maker", base=target.base, identity=identity, like=like)).header
    now, plan = parse_maker(told_now["maker"]), parse_plan(told_now["plan"])
    needed = devices_needed(plan, _of_good(found, good))
    kept = {snapshot.name: snapshot for snapshot in found.kept}[seed.name]
    return SeedPlan(seed, judge(kept.made_by, kept.devices, now, needed), found.seeded_from)


def require_fit(target: Target, plan: SeedPlan, way_out: str) -> None:
    """Raises PreflightError naming the hard fields that differ. way_out: the command with --force."""
    if not plan.fit.hard:
        return
    raise PreflightError(
        f"snapshot {plan.seed.name} does not fit {target.name}: not all look-ups can hit; nothing was changed",
        evidence="\n".join(f"{one.field}: {one.kept} in the snapshot, {one.now} now" for one in plan.fit.hard),
        way_out=f"orch cache list\n{way_out}     to seed it all the same",
    )


async def make_seed(
    session: AgentSession, target: Target, plan: SeedPlan, *, replace: bool, command: str | None = None
) -> SeededReport:
    """Needs the lease. command: what --replace goes with; None: orch cache seed. Raises BusyError, PreflightError; then
    the cache is as it was."""
    try:
        reply = await session.request(
            "cache_seed",
            base=target.base,
            name=plan.seed.name,
            folders=folders_of(target),
            replace=replace,
            who=who_asks(),
            timeout_s=COPY_LIMIT_S,
        )
    except AgentOpError as error:
        raise said(error, target, command or f"orch cache seed {plan.seed.name}") from error
    told = reply.header
    about = (target.name, target.label, plan.seed.name, plan.seed.why)
    return SeededReport(*about, told["bytes"], told["files"], told["aside"], plan.fit)


def _of_good(found: Snapshots, good: Sequence[Good]) -> Devices | None:
    """What the cache of the last good run holds."""
    kept = {snapshot.name: snapshot for snapshot in found.kept}
    try:
        return kept[choose_seed(LAST_GOOD, found, good).name].devices
    except UsageError:
        return None


def said(error: AgentOpError, target: Target, command: str = "orch cache seed NAME") -> Exception:
    """With the way out that fits. command: what --replace goes with."""
    if error.kind == "not_empty":
        way_out = f"{command} --replace     keeps what is there as a snapshot first"
        return NotEmptyError(f"{target.name}: {error.what}", evidence="nothing was changed", way_out=way_out)
    if error.kind == "damaged":
        return PreflightError(error.what, evidence="nothing was changed", way_out="orch cache verify\norch cache list")
    if error.kind == "busy":
        return BusyError(error.what, evidence=error.evidence, way_out="orch status\norch stop     to end a run")
    if error.kind == "conflict":
        return PreflightError(error.what, way_out="orch cache list\norch cache save ANOTHER-NAME")
    if error.kind == "bad_request":
        return UsageError(error.what, way_out="orch cache save NAME     letters, digits, dots, dashes, underscores")
    return error

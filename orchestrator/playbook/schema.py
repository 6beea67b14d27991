"""What may stand in a playbook: strict pydantic models, one for the options of each operation.

Rule: a model checks one entry by itself; what concerns several steps is checked in `relations`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from orchestrator.inventory.schema import Entry, Line, Text
from orchestrator.playbook.durations import PATTERN, parse_duration

VARIABLE_NAME = r"[a-z][a-z0-9_]{0,63}"
_RUN_NAME = "letters, digits, dots, dashes and underscores"


def _duration(value: str) -> str:
    parse_duration(value)
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(VARIABLE_NAME, value):
        raise ValueError("a variable's name has small letters, digits and `_`, and begins with a letter")
    return value


def _snapshot(value: str) -> str:
    if "${" not in value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError(f"a snapshot's name has {_RUN_NAME}")
    return value


Duration = Annotated[
    str, AfterValidator(_duration), WithJsonSchema({"type": "string", "pattern": f"^{PATTERN}$", "examples": ["30m"]})
]
VariableName = Annotated[str, AfterValidator(_variable)]
Snapshot = Annotated[Line, AfterValidator(_snapshot)]
Percent = Annotated[float, Field(gt=0, le=1000)]
Value = bool | int | float | Annotated[str, Field(max_length=4096)]
Severity = Literal["info", "warning", "critical"]


class Described(Entry):
    """Its keys' docstrings are what an editor shows."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RetryEntry(Described):
    times: Annotated[int, Field(ge=1, le=20)]
    """How often it is tried again after the first time."""
    wait: Duration = "10s"
    """Before the first repetition; doubled each time, up to ten minutes."""


class DeployOptions(Described):
    """Ship the payload as a new release and switch to it."""

    ref: Line | None = None
    """A git commit, in place of the files as they are."""


class EnvSyncOptions(Described):
    """Build what the inventory's locks say, and make it current."""

    purposes: list[Line] = Field(default_factory=list)
    wheels: Line | None = None
    """A folder that holds every wheel; nothing is fetched then."""
    indexes: list[Line] = Field(default_factory=list)
    rebuild: bool = False


class EnvCheckOptions(Described):
    """Compare the environment with its lock or baseline; what is wrong with it fails the step."""

    purpose: Line | None = None
    mode: Literal["all", "newer", "names"] = "newer"


class CacheSeedOptions(Described):
    """Make the live compile cache from a snapshot."""

    name: Snapshot = "last-good"
    replace: bool = True
    """What is there is kept as a snapshot first."""
    force: bool = False
    without: Literal["fail", "go on"] = "fail"
    """When there is no such snapshot, or it does not fit: the run then compiles everything itself."""


class CacheSaveOptions(Described):
    """Keep a copy of the live compile cache under a name."""

    name: Snapshot


class WarmupOptions(Described):
    """Compile what a run will ask for, as runs of their own, until a fresh process finds all of it in the cache."""

    settings: dict[str, object] = Field(default_factory=dict)


class LaunchOptions(Described):
    """Start a run. Its id is chosen and recorded first: it is never started twice."""

    settings: dict[str, object] = Field(default_factory=dict)
    resume: Line | None = None
    """`last`, RUN or RUN:STEP."""


class StopOptions(Described):
    """Ask the run of this play for a checkpoint and stop it."""

    what: Literal["run of the play", "any live run"] = "run of the play"
    timeout: Duration | None = None
    kill: bool = False


class ResetOptions(Described):
    """Free the GPUs of what this target left there, set the compile cache aside. It ends a live run, too."""

    kill_gpus: bool = False
    clear_cache: bool = False
    seed: Snapshot | None = None


class StatusOptions(Described):
    """Look. Without options nothing is demanded."""

    idle: bool = False
    """No run is live."""
    gpus_free: bool = False
    """No process holds memory of a GPU."""
    gpus_healthy: bool = False
    """Every GPU answers, as many as the payload wants, and nothing is wrong with one."""
    free_disk_gib: Annotated[float, Field(gt=0)] | None = None


class DoctorOptions(Described):
    """Say why a run is slow or dead, or what keeps the next one from being well."""

    run: Line | None = None
    """Default: the run of this play, else the live or newest one."""
    no_finding_above: Severity = "warning"
    """A finding that is more severe fails the step; `critical`: none does."""


class DiffOptions(Described):
    """What differs between two runs, the likeliest cause first."""

    a: Line = "last-good"
    b: Line = "latest"
    different: Literal["ok", "fail"] = "ok"


class PullOptions(Described):
    """Fetch a run's records, log and checkpoints."""

    run: Line | None = None
    """A run's id, or `last`; default: the run of this play."""
    to: Line | None = None
    """A folder on the controller; default: runs/<run id>."""


class ExpectOptions(Described):
    """The run of this play is as fast as it should be."""

    percent_of_last_good: Percent | None = None
    tokens_per_s: Annotated[float, Field(gt=0)] | None = None
    within: Duration = "30m"
    """The rate must have been reached by then; compiling counts."""
    no_finding_above: Severity | None = None
    """No finding of `orch doctor` that is more severe than this."""


class WaitOptions(Described):
    """Wait for the run of this play. A link that comes and goes ends nothing."""

    until: Literal["finished", "first-step"] | None = None
    step: Annotated[int, Field(ge=1)] | None = None


class EvaluateOptions(Described):
    """What the trained model is worth: tau (the acceptance length) and whether decoding was lossless."""

    read: Literal["result", "own run"] = "result"
    """The run's own result.json, or that of a run that evaluates a checkpoint."""
    checkpoint: Line | None = None
    """For `own run`: RUN or RUN:STEP; default: the newest checkpoint of the run of this play."""
    settings: dict[str, object] = Field(default_factory=dict)


class GateOptions(Described):
    """Refuse what is worse than what is published."""

    tau_drop: Annotated[float, Field(ge=0)] = 0.0
    """Tau may be lower than the published one by so much."""
    tau_at_least: Annotated[float, Field(gt=0)] | None = None
    lossless: bool = True
    to: Line | None = None
    """Where the published one is; default: where the next `publish` step publishes."""


class PublishOptions(Described):
    """Make the evaluated checkpoint the published one."""

    to: Line
    """FOLDER, TARGET:FOLDER or s3://BUCKET/PREFIX."""
    what: Line | None = None
    """RUN (its export) or RUN:STEP (a checkpoint); default: the export of the run that `evaluate` read."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 5


class NotifyOptions(Described):
    """Tell somebody how it went. It never fails the play."""

    command: Annotated[list[Text], Field(min_length=1)] | None = None
    webhook: Line | None = None
    """`env:NAME` or `file:PATH`: where the address stands; it is a secret."""
    text: Text = "${summary}"


class RunOptions(Described):
    """Run one argv."""

    argv: Annotated[list[Text], Field(min_length=1)]
    where: Literal["target", "controller"] = "target"
    repeatable: bool = False
    """Whether it may be run again when nobody knows how it ended."""


class StepEntry(Described):
    """One operation with its options, and how it is to be done."""

    name: Line | None = None
    target: Line | None = None
    """Target, group or container id, in place of the playbook's."""
    when: Text | None = None
    deadline: Duration | None = None
    retry: RetryEntry | None = None
    on_failure: Literal["stop", "continue"] = "stop"

    deploy: DeployOptions | None = None
    env_sync: EnvSyncOptions | None = Field(None, alias="env sync")
    env_check: EnvCheckOptions | None = Field(None, alias="env check")
    cache_seed: CacheSeedOptions | None = Field(None, alias="cache seed")
    cache_save: CacheSaveOptions | None = Field(None, alias="cache save")
    warmup: WarmupOptions | None = None
    launch: LaunchOptions | None = None
    stop: StopOptions | None = None
    reset: ResetOptions | None = None
    status: StatusOptions | None = None
    doctor: DoctorOptions | None = None
    diff: DiffOptions | None = None
    pull: PullOptions | None = None
    expect: ExpectOptions | None = None
    wait: WaitOptions | None = None
    evaluate: EvaluateOptions | None = None
    gate: GateOptions | None = None
    publish: PublishOptions | None = None
    notify: NotifyOptions | None = None
    run: RunOptions | None = None


class PlaybookEntry(Described):
    about: Line | None = None
    target: Line | None = None
    vars: dict[VariableName, Value] = Field(default_factory=dict)
    steps: Annotated[list[StepEntry], Field(min_length=1)]
    on_failure: list[StepEntry] = Field(default_factory=list)
    always: list[StepEntry] = Field(default_factory=list)


COMMON = ("name", "target", "when", "deadline", "retry", "on_failure")
OPERATIONS: dict[str, str] = {
    field.alias or name: name for name, field in StepEntry.model_fields.items() if name not in COMMON
}
"""As it is written -> the model's field."""
SECTIONS = ("steps", "on_failure", "always")


def options_model(operation: str) -> type[Entry]:
    """operation: as it is written."""
    annotation = StepEntry.model_fields[OPERATIONS[operation]].annotation
    (model,) = [
        part for part in getattr(annotation, "__args__", ()) if isinstance(part, type) and issubclass(part, Entry)
    ]
    return model


def model_at(path: tuple[str | int, ...]) -> type[BaseModel]:
    """Which model the entry at this place of the file is checked by."""
    match path:
        case (section, int()) if section in SECTIONS:
            return StepEntry
        case (section, int(), "retry") if section in SECTIONS:
            return RetryEntry
        case (section, int(), str(operation), *_) if section in SECTIONS and operation in OPERATIONS:
            return options_model(operation)
    return PlaybookEntry


def keys_at(path: tuple[str | int, ...]) -> list[str]:
    """The keys that may stand there, as they are written."""
    return [field.alias or name for name, field in model_at(path).model_fields.items()]

"""Every op the agent knows: name -> (module, function). The one table; nothing registers itself.

An op is `def op(params: dict, body: bytes, channel: Channel) -> dict | (dict, bytes)`: it runs in its own
thread, may `channel.emit` events, should look at `channel.cancelled`, and raises errors.OpError for what it
expects to go wrong. Names instead of functions, because a module that is not used need not be compiled at
the start of every connection.
"""

from __future__ import annotations

import importlib

from .channel import Channel
from .errors import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, Dict, Tuple, Union

    Answer = Union[Dict[str, Any], Tuple[Dict[str, Any], bytes]]
    Op = Callable[[Dict[str, Any], bytes, Channel], Answer]


OPS: Dict[str, Tuple[str, str]] = {
    "hello": ("identity", "hello"),
    "start_run": ("start", "start_run"),
    "fingerprint_now": ("fingerprint", "fingerprint_now"),
    "file_contents": ("kept_files", "file_contents"),
    "mark_run": ("mark", "mark_run"),
    "adopt_session": ("adopt", "adopt_session"),
    "note_run": ("remarks", "note_run"),
    "keep_findings": ("remarks", "keep_findings"),
    "run_facts": ("observe", "run_facts"),
    "list_runs": ("observe", "list_runs"),
    "runs_overview": ("runs", "runs_overview"),
    "wait_run": ("observe", "wait_run"),
    "watch": ("watch", "watch"),
    "stop_run": ("stop", "stop_run"),
    "run_leftovers": ("leftovers", "run_leftovers"),
    "gpu_holders": ("gpu_holders", "gpu_holders"),
    "gpus": ("gpus", "gpus"),
    "kill_processes": ("kill", "kill_processes"),
    "list_snapshots": ("snapshots", "list_snapshots"),
    "snapshot_verify": ("snapshots", "snapshot_verify"),
    "cache_clear": ("cache_clear", "cache_clear"),
    "cache_maker": ("cache_makers", "cache_maker"),
    "cache_proof": ("cache_plan", "cache_proof"),
    "cache_save": ("cache_save", "cache_save"),
    "cache_drop": ("cache_save", "cache_drop"),
    "cache_seed": ("cache_seed", "cache_seed"),
    "cache_check": ("cache_seed", "cache_check"),
    "cache_describe": ("cache_move", "cache_describe"),
    "cache_receive": ("cache_move", "cache_receive"),
    "cache_show": ("cache_census", "cache_show"),
    "preflight": ("preflight", "preflight"),
    "who_imports": ("imports", "who_imports"),
    "trace": ("trace", "trace"),
    "run_batch": ("commands", "run_batch"),
    "lease_acquire": ("lease", "lease_acquire"),
    "lease_release": ("lease", "lease_release"),
    "lease_assert": ("lease", "lease_assert"),
    "find_failure": ("failure", "find_failure"),
    "cache_stats": ("cache", "cache_stats"),
    "journal_begin": ("journal", "journal_begin"),
    "journal_end": ("journal", "journal_end"),
    "journal_entries": ("journal", "journal_entries"),
    "read_file": ("files", "read_file"),
    "follow_file": ("files", "follow_file"),
    "tree_plan": ("tree_plan", "tree_plan"),
    "list_releases": ("tree_plan", "list_releases"),
    "tree_push": ("tree_push", "tree_push"),
    "tree_scan": ("tree_read", "tree_scan"),
    "tree_send": ("tree_read", "tree_send"),
    "tree_verify": ("tree_read", "tree_verify"),
    "env_facts": ("env_facts", "env_facts"),
    "env_baseline": ("env_baseline", "env_baseline"),
    "env_look": ("env_look", "env_look"),
    "env_list": ("env_store", "env_list"),
    "env_build": ("env_build", "env_build"),
    "env_use": ("env_switch", "env_use"),
    "env_remove": ("env_switch", "env_remove"),
    "switch_current": ("releases", "switch_current"),
    "prune_releases": ("releases", "prune_releases"),
    "publications_list": ("publications", "publications_list"),
    "publication_switch": ("publications", "publication_switch"),
    "publications_prune": ("publications", "publications_prune"),
    "model_check": ("model_files", "model_check"),
}

COMMANDS: Dict[str, Tuple[str, str]] = {
    "wrapper": ("wrapper", "main"),
    "keep": ("keeper", "main"),
}
"""First word of `python3 <base>/lib/<hash> WORD ...` -> function(argv) -> exit code."""


def find_op(name: str) -> Op:
    """Raises OpError("unknown_op")."""
    if name not in OPS:
        raise OpError("unknown_op", "the agent has no op %r" % name)
    op: Op = _load(*OPS[name])
    return op


def find_command(name: str) -> Callable[[list[str]], int]:
    """Raises KeyError."""
    command: Callable[[list[str]], int] = _load(*COMMANDS[name])
    return command


def _load(module: str, function: str) -> Any:
    return getattr(importlib.import_module("." + module, __package__), function)

"""The one way files move, for everything that moves files: deploy, cache, wheels, results. This is its front.

source = scan_folder(folder) | scan_git_revision(folder, "v1.2")
result = await push_tree(session, source, f"{base}/releases")
await switch_current(session, base, result.tree_hash)
await pull_tree(session, f"{base}/runs/<id>/checkpoints", folder)
"""

from __future__ import annotations

from orchestrator.agent.git import GitState, describe_git
from orchestrator.agent.tree_commit import scan_git_revision
from orchestrator.agent.tree_progress import OnProgress, Progress
from orchestrator.agent.tree_pull import PullResult, pull_tree
from orchestrator.agent.tree_push import PushResult, Switched, push_tree, switch_current
from orchestrator.agent.tree_source import TreeSource, scan_folder

__all__ = [
    "GitState",
    "OnProgress",
    "Progress",
    "PullResult",
    "PushResult",
    "Switched",
    "TreeSource",
    "describe_git",
    "pull_tree",
    "push_tree",
    "scan_folder",
    "scan_git_revision",
    "switch_current",
]

"""The JSON Schema of playbooks, for editors: docs/playbook.schema.json is its output.

Rule: pure; made from the models that check playbooks, so the two cannot differ.
"""

from __future__ import annotations

import json
from typing import Any

from orchestrator.playbook import schema

_VARIABLE = {"type": "string", "pattern": r"^\$\{[a-z][a-z0-9_]*\}$", "description": "a variable"}


def schema_text() -> str:
    made = schema.PlaybookEntry.model_json_schema(by_alias=True)
    step = made["$defs"]["StepEntry"]
    step["oneOf"] = [{"required": [operation]} for operation in schema.OPERATIONS]
    for operation in schema.OPERATIONS:
        # `deploy:` with nothing behind it is a step without options.
        step["properties"][operation].pop("default", None)
    for section in schema.SECTIONS:
        one = {"enum": list(schema.OPERATIONS), "description": "an operation without options"}
        made["properties"][section]["items"] = {"anyOf": [{"$ref": "#/$defs/StepEntry"}, one]}
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A playbook of orch",
        **{key: _with_variables(value) for key, value in made.items() if key != "title"},
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _with_variables(node: Any) -> Any:
    """Wherever a number, a truth value or one of several words may stand, a variable may."""
    if isinstance(node, list):
        return [_with_variables(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("integer", "number", "boolean") or ("enum" in node and node.get("type") == "string"):
        about = {key: node[key] for key in ("default", "title", "description") if key in node}
        return {"anyOf": [{key: value for key, value in node.items() if key not in about}, _VARIABLE], **about}
    return {key: _with_variables(value) for key, value in node.items()}

"""What the drafter is worth: real speculative decoding on held-out prompts, with the controls beside it.

Rule: the acceptance length comes from decoding, never from training metrics, and always with its controls: the same
drafter without the target's hidden states, and an untrained drafter of the same shape.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from config import Config
from drafter import Drafter
from prepare import Prepared, heldout_prompts
from progress import Progress
from speculate import Acceptance, Decoded, decode_greedily, decode_speculatively, measure_acceptance
from stopping import StopRequest
from text import Template

Prompts = List[Tuple[Template, List[int]]]


def evaluate(
    config: Config, prepared: Prepared, drafter: Drafter, untrained: Drafter, progress: Progress, stop: StopRequest
) -> Dict[str, Any]:
    """The result record; its lines are logged. Raises StopAsked."""
    drafter.eval()
    controls = min(config.evaluate.control_prompts, config.evaluate.prompts)
    by_template = heldout_prompts(config, prepared.vocabulary, "heldout_template", config.evaluate.prompts)
    by_family = heldout_prompts(config, prepared.vocabulary, "heldout_family", controls)
    progress.phase("evaluating", "plain greedy decoding")
    plain = _decode_plain(config, prepared, by_template, stop)
    plain_family = _decode_plain(config, prepared, by_family, stop)
    progress.phase("evaluating", "speculative decoding")
    decoded = _decode(config, prepared, drafter, by_template, stop)
    without = _decode(config, prepared, drafter, by_template[:controls], stop, use_context=False)
    bare = _decode(config, prepared, untrained, by_template[:controls], stop)
    measured: Dict[str, Acceptance] = {
        "trained": measure_acceptance(decoded, plain),
        "without_context": measure_acceptance(without, plain[:controls]),
        "untrained": measure_acceptance(bare, plain[:controls]),
        "unseen_family": measure_acceptance(_decode(config, prepared, drafter, by_family, stop), plain_family),
    }
    for name, one in measured.items():
        progress.say(f"{name.replace('_', ' ')}: {one.length:.2f} tokens a cycle over {one.cycles} cycles")
    lossless = all(one.lossless for one in measured.values())
    progress.say(f"{len(by_template)} held-out prompts, {measured['trained'].tokens} tokens; identical: {lossless}")
    return {
        "acceptance_length": measured["trained"].length,
        "acceptance_length_without_context": measured["without_context"].length,
        "acceptance_length_untrained": measured["untrained"].length,
        "acceptance_length_unseen_family": measured["unseen_family"].length,
        "acceptance_length_by_family": _by_family(by_template, decoded, plain),
        "block_size": config.block_size,
        "lossless": lossless,
        "prompts": len(by_template),
        "control_prompts": controls,
        "tokens": measured["trained"].tokens,
        "cycles": measured["trained"].cycles,
    }


def _decode_plain(config: Config, prepared: Prepared, prompts: Prompts, stop: StopRequest) -> List[List[int]]:
    out = []
    for _, prompt in prompts:
        stop.leave_if_asked()
        out.append(
            decode_greedily(
                prepared.target, prompt, new_tokens=config.evaluate.new_tokens, end_ids=prepared.vocabulary.end_ids
            )
        )
    return out


def _decode(
    config: Config,
    prepared: Prepared,
    drafter: Drafter,
    prompts: Prompts,
    stop: StopRequest,
    *,
    use_context: bool = True,
) -> List[Decoded]:
    out = []
    for _, prompt in prompts:
        stop.leave_if_asked()
        out.append(
            decode_speculatively(
                prepared.target,
                drafter,
                prompt,
                width=config.block_size,
                new_tokens=config.evaluate.new_tokens,
                end_ids=prepared.vocabulary.end_ids,
                mask_id=prepared.vocabulary.mask_id,
                use_context=use_context,
            )
        )
    return out


def _by_family(prompts: Prompts, decoded: List[Decoded], plain: List[List[int]]) -> Dict[str, float]:
    families = sorted({template.family for template, _ in prompts})
    chosen = {name: [i for i, (template, _) in enumerate(prompts) if template.family == name] for name in families}
    return {
        name: measure_acceptance([decoded[i] for i in rows], [plain[i] for i in rows]).length
        for name, rows in chosen.items()
    }

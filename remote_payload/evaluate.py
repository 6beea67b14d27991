"""What the drafter is worth: real speculative decoding on held-out prompts, with the controls beside it.

Rule: the acceptance length comes from decoding, never from training metrics, and always with its controls: the same
drafter without the target's hidden states, and an untrained drafter of the same shape.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import contract
from config import Config
from drafter import Drafter
from prepare import Prepared, Prompts, heldout_prompts
from speculate import Acceptance, Decoded, decode_greedily, decode_speculatively, measure_acceptance
from start import Run

OnCycle = Callable[[], None]


def evaluate(run: Run, prepared: Prepared, drafter: Drafter, untrained: Drafter) -> Dict[str, Any]:
    """The result record; its lines are logged. Raises StopAsked."""
    config, progress = run.config, run.progress

    def on_cycle() -> None:
        # Between two tokens, not two prompts: one may take minutes, and whoever asks to stop waits for less.
        run.stop.leave_if_asked()
        progress.goes_on()

    drafter.eval()
    prompts, others = heldout_prompts(config, prepared)
    controls = min(config.evaluate.control_prompts, len(prompts))
    others = others[:controls]
    progress.phase("evaluating", "plain greedy decoding")
    plain = _decode_plain(config, prepared, prompts, on_cycle)
    plain_others = _decode_plain(config, prepared, others, on_cycle)
    progress.phase("evaluating", "speculative decoding")
    decoded = _decode(config, prepared, drafter, prompts, on_cycle)
    without = _decode(config, prepared, drafter, prompts[:controls], on_cycle, use_context=False)
    bare = _decode(config, prepared, untrained, prompts[:controls], on_cycle)
    measured: Dict[str, Acceptance] = {
        "trained": measure_acceptance(decoded, plain),
        "without_context": measure_acceptance(without, plain[:controls]),
        "untrained": measure_acceptance(bare, plain[:controls]),
    }
    if others:
        measured["unseen_family"] = measure_acceptance(
            _decode(config, prepared, drafter, others, on_cycle), plain_others
        )
    for name, one in measured.items():
        progress.say(f"{name.replace('_', ' ')}: {one.length:.2f} tokens a cycle over {one.cycles} cycles")
    lossless = all(one.lossless for one in measured.values())
    progress.say(f"{len(prompts)} held-out prompts, {measured['trained'].tokens} tokens; identical: {lossless}")
    return {
        "acceptance_length": measured["trained"].length,
        "acceptance_length_without_context": measured["without_context"].length,
        "acceptance_length_untrained": measured["untrained"].length,
        "acceptance_length_unseen_family": measured["unseen_family"].length if others else None,
        "acceptance_length_by_family": _by_group(prompts, decoded, plain),
        "acceptance_length_definition": contract.ACCEPTANCE_LENGTH,
        "block_size": config.block_size,
        "lossless": lossless,
        "identical_prompts": measured["trained"].identical,
        "prompts": len(prompts),
        "control_prompts": controls,
        "tokens": measured["trained"].tokens,
        "cycles": measured["trained"].cycles,
    }


def _decode_plain(config: Config, prepared: Prepared, prompts: Prompts, on_cycle: OnCycle) -> List[List[int]]:
    out = []
    for _, prompt in prompts:
        out.append(
            decode_greedily(
                prepared.target,
                prompt,
                new_tokens=config.evaluate.new_tokens,
                end_ids=prepared.vocabulary.end_ids,
                on_cycle=on_cycle,
            )
        )
    return out


def _decode(
    config: Config,
    prepared: Prepared,
    drafter: Drafter,
    prompts: Prompts,
    on_cycle: OnCycle,
    *,
    use_context: bool = True,
) -> List[Decoded]:
    out = []
    for _, prompt in prompts:
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
                on_cycle=on_cycle,
            )
        )
    return out


def _by_group(prompts: Prompts, decoded: List[Decoded], plain: List[List[int]]) -> Dict[str, float]:
    groups = sorted({group for group, _ in prompts})
    chosen = {name: [i for i, (group, _) in enumerate(prompts) if group == name] for name in groups}
    return {
        name: measure_acceptance([decoded[i] for i in rows], [plain[i] for i in rows]).length
        for name, rows in chosen.items()
    }

"""What an exported drafter is worth: `python decode.py --target FOLDER --drafter FOLDER --prompts FILE.jsonl`.

Rule: real speculative decoding, greedy, held against the target's own greedy decoding; on a CPU in float32, on CUDA in
bfloat16. There the target's own numbers depend a little on how many tokens go through it at once: where two tokens are
as good as equal, the outputs may part, and `identical_prompts` says in how many they did not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import contract
from chat import chat_format
from config import Config, ConfigError, resolve
from dataset import Recipe, to_question
from devices import DeviceError, place
from export import load_exported
from prepare import Prompts
from samples import BadSample, DataError, Unusable, read_samples
from speculate import decode_greedily, decode_speculatively, measure_acceptance
from start import add_settings, settings_layers
from target import Target, load_model
from tokens import Vocabulary, load_vocabulary


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="decode.py", description=__doc__.split(":")[0], allow_abbrev=False)
    parser.add_argument(
        "--target", type=Path, required=True, metavar="FOLDER", help="a model; one made by a run: its prepared/"
    )
    parser.add_argument("--drafter", type=Path, required=True, metavar="FOLDER", help="export/ in a run's folder")
    parser.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="samples, as training data")
    add_settings(parser)
    asked = parser.parse_args(arguments)
    try:
        for folder in (asked.target, asked.drafter):
            if not (folder / "config.json").is_file():  # transformers would take it for a name on its hub
                raise ValueError(f"{folder} is no folder of a model: there is no config.json in it")
        config, _ = resolve(*settings_layers(asked))
        print(json.dumps(measure(config, asked.target, asked.drafter, asked.prompts), indent=1))
    except (ConfigError, DataError, DeviceError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return contract.EXIT_BAD_CONFIG
    return contract.EXIT_OK


def measure(config: Config, target_folder: Path, drafter_folder: Path, prompts_file: Path) -> Dict[str, Any]:
    """evaluate.prompts prompts, evaluate.new_tokens tokens each."""
    device = place(config.device, targets=1, drafters=1).device
    drafter, described = load_exported(drafter_folder, device)
    dflash = described["dflash_config"]
    target = Target(load_model(target_folder, device), drafter.shape.layers)
    if target.layer_ids != dflash["target_layer_ids"]:
        raise ValueError(f"the drafter reads layers {dflash['target_layer_ids']}, this target gives {target.layer_ids}")
    if target.config.hidden_size != drafter.shape.hidden_size:
        raise ValueError(
            f"the drafter reads hidden states of {drafter.shape.hidden_size} numbers, this target's have "
            f"{target.config.hidden_size}"
        )
    vocabulary = load_vocabulary(target_folder)
    prompts = [ids for _, ids in read_prompts(config, prompts_file, vocabulary)]
    limits = {"new_tokens": config.evaluate.new_tokens, "end_ids": vocabulary.end_ids}

    decode_greedily(target, prompts[0], new_tokens=2, end_ids=vocabulary.end_ids)  # what the first call alone costs
    began = time.perf_counter()
    plain = [decode_greedily(target, prompt, **limits) for prompt in prompts]
    plain_s = time.perf_counter() - began
    began = time.perf_counter()
    decoded = [
        decode_speculatively(
            target, drafter, prompt, width=dflash["block_size"], mask_id=dflash["mask_token_id"], **limits
        )
        for prompt in prompts
    ]
    drafted_s = time.perf_counter() - began
    measured = measure_acceptance(decoded, plain)
    return {
        "acceptance_length": measured.length,
        "acceptance_length_definition": contract.ACCEPTANCE_LENGTH,
        "block_size": dflash["block_size"],
        "cycles": measured.cycles,
        "device": str(device),
        "identical_prompts": measured.identical,
        "lossless": measured.lossless,
        "prompts": measured.prompts,
        "tokens": measured.tokens,
        "tokens_per_s": measured.tokens / drafted_s,
        "tokens_per_s_plain": sum(len(one) for one in plain) / plain_s,
    }


def read_prompts(config: Config, path: Path, vocabulary: Vocabulary) -> Prompts:
    """Raises DataError: at the first sample that cannot be asked, or when there is none."""
    recipe = Recipe(config, vocabulary, chat_format(vocabulary, config.data.chat_template, config.data.thinking))
    prompts: Prompts = []
    for file, number, sample in read_samples(path, {}):
        if len(prompts) == config.evaluate.prompts:
            break
        if isinstance(sample, BadSample):
            raise DataError(f"{sample.place}: {sample.reason}")
        try:
            prompts.append((file, to_question(sample, recipe)))
        except Unusable as why:
            raise DataError(f"{file}:{number}: a sample {why}") from None
    if not prompts:
        raise DataError(f"{path} holds no sample")
    return prompts


if __name__ == "__main__":
    sys.exit(main())

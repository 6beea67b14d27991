"""Before the drafter can learn: the target, its tokenizer and the sequences to train on, kept in the run's folder.

Rule: all of it is a function of the settings and the seed, is made once, and counts only when its folder has its final
name. A resumed run takes its predecessor's folder instead of making it again.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import torch
from config import Config
from progress import Progress
from rows import Rows, RowWriter, open_rows
from stopping import StopRequest
from target import Target, continue_greedily, load_model, new_model, train_target
from text import Template, all_templates, make_documents, templates
from tokens import Vocabulary, load_vocabulary, train_vocabulary
from torch import Tensor

FOLDER = "prepared"
ROWS = "rows-0"
TARGET_DOCUMENTS = 1500
REGENERATION_BATCH = 160


@dataclass(frozen=True)
class Prepared:
    folder: Path
    target: Target
    vocabulary: Vocabulary
    rows: Rows


def prepare(
    config: Config,
    run_folder: Path,
    *,
    model_folder: Optional[Path],
    predecessor: Optional[Path],
    device: torch.device,
    progress: Progress,
    stop: StopRequest,
) -> Prepared:
    """Raises StopAsked, OSError or ValueError (a folder that is no model)."""
    final = run_folder / FOLDER
    if not final.is_dir():
        fresh = run_folder / f".{FOLDER}.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        if predecessor is not None:
            progress.say(f"target and text: from {predecessor}")
            shutil.copytree(predecessor, fresh)
        else:
            fresh.mkdir(parents=True)
            _make(config, fresh, model_folder, device, progress, stop)
        os.replace(fresh, final)
    weights = model_folder or final
    target = Target(load_model(weights, device), config.drafter.layers)
    return Prepared(final, target, load_vocabulary(weights), open_rows([final / ROWS]))


def _make(
    config: Config,
    folder: Path,
    model_folder: Optional[Path],
    device: torch.device,
    progress: Progress,
    stop: StopRequest,
) -> None:
    if model_folder is not None:
        vocabulary, model = load_vocabulary(model_folder), load_model(model_folder, device)
    else:
        documents = [text for _, text in make_documents(all_templates(), TARGET_DOCUMENTS, f"target {config.seed}")]
        vocabulary = train_vocabulary(documents, config.text.vocabulary)
        vocabulary.save(folder)
        model = new_model(config.target, vocabulary.size, config.seed).to(device)
        _train(config, model, encode_rows(vocabulary, documents, config.text.tokens), progress, stop)
        model.save_pretrained(str(folder))
    target = Target(model, config.drafter.layers)
    learned = [text for _, text in make_documents(templates("train"), config.text.documents, f"drafter {config.seed}")]
    tokens, length = encode_rows(vocabulary, learned, config.text.tokens)
    if config.text.regenerate:
        tokens, length = _regenerate(config, target, tokens, vocabulary, progress, stop)
    writer = RowWriter(folder / ROWS)
    given = config.text.prompt_tokens
    for row, count in zip(tokens.tolist(), length.tolist(), strict=True):
        if count >= given + 2:
            writer.add(row[:count], [position >= given for position in range(count)])
    writer.close()
    if not writer.rows:
        raise ValueError("no training sequence has a response of two tokens; raise target.steps or text.tokens")


def _train(
    config: Config, model: torch.nn.Module, rows: Tuple[Tensor, Tensor], progress: Progress, stop: StopRequest
) -> None:
    def on_step(step: int, loss: float) -> None:
        stop.leave_if_asked()
        progress.detail(f"target step {step} of {config.target.steps}")
        if step % 50 == 0 or step == config.target.steps:
            progress.say(f"target: step {step} of {config.target.steps}, loss {loss:.3f}")

    progress.say(f"target: {sum(p.numel() for p in model.parameters()):,} parameters, trained here")
    train_target(model, *rows, config.target, config.seed, on_step)


def _regenerate(
    config: Config, target: Target, tokens: Tensor, vocabulary: Vocabulary, progress: Progress, stop: StopRequest
) -> Tuple[Tensor, Tensor]:
    prompts = tokens[:, : config.text.prompt_tokens].to(target.embed.weight.device)
    done: List[Tuple[Tensor, Tensor]] = []
    for start in range(0, len(prompts), REGENERATION_BATCH):
        progress.detail(f"target writes responses: {start} of {len(prompts)}")
        part = prompts[start : start + REGENERATION_BATCH]
        done.append(continue_greedily(target, part, config.text.tokens, vocabulary.end_ids, stop.leave_if_asked))
    progress.say(f"target wrote {len(prompts)} responses")
    return torch.cat([part for part, _ in done]).cpu(), torch.cat([length for _, length in done]).cpu()


def encode_rows(vocabulary: Vocabulary, texts: Sequence[str], width: int) -> Tuple[Tensor, Tensor]:
    """Rows [N, width] filled with the end token, and how many of each count (the first end token does)."""
    rows = [[*vocabulary.encode(text)[: width - 1], vocabulary.end_id] for text in texts]
    filled = [row + [vocabulary.end_id] * (width - len(row)) for row in rows]
    return torch.tensor(filled), torch.tensor([len(row) for row in rows])


def heldout_prompts(config: Config, vocabulary: Vocabulary, split: str, count: int) -> List[Tuple[Template, List[int]]]:
    """`count` prompts of templates that no training document has."""
    documents = make_documents(templates(split), count, f"{split} {config.seed}")
    random.Random(config.seed).shuffle(documents)
    return [(template, vocabulary.encode(text)[: config.text.prompt_tokens]) for template, text in documents]

"""Before the drafter can learn: the target, its tokenizer and the sequences to train on, kept in the run's folder.

Rule: all of it is a function of the settings and the seed, is made once, and counts only when its folder has its final
name. A resumed run takes its predecessor's folder instead of making it again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

import contract
import torch
from checkpoint import Checkpoint
from config import Config, ConfigError
from data import read_data, read_record
from dataset import question_length
from identity import identity_of_model
from order import Chapters, grow
from packing import Packs, pack_rows
from rows import Rows, RowWriter, open_rows, part_folders
from start import Run
from target import Target, continue_greedily, load_model, new_model, train_target
from text import all_templates, make_documents, templates
from tokens import Vocabulary, load_vocabulary, train_vocabulary
from torch import Tensor

FOLDER = "prepared"
ROWS = "rows-0"
TARGET_DOCUMENTS = 1500
REGENERATION_BATCH = 160


Prompts = List[Tuple[str, List[int]]]
"""Which group a prompt is of, and its tokens."""


@dataclass(frozen=True)
class Prepared:
    folder: Path
    target: Target
    vocabulary: Vocabulary
    rows: Rows
    chapters: Chapters
    """How many rows there were when: the order they come in."""
    width: int
    """Tokens of the longest row there may be."""
    held_out: Optional[Rows]
    """Samples of the given data that are not trained on; None when the text was made here."""
    weights: Path = Path()
    """The target's own folder."""
    packs: Optional[Packs] = None
    """Which documents share a row; None: each has one of its own."""
    target_identity: Optional[str] = None


def prepare(run: Run, *, resumed: Optional[Checkpoint], device: torch.device) -> Prepared:
    """Raises StopAsked, ConfigError, DataError, OSError."""
    config, spec, progress = run.config, run.spec, run.progress
    final = run.folder / FOLDER
    if resumed is not None:
        check_same_material(resumed, spec)
    if not final.is_dir():
        fresh = run.folder / f".{FOLDER}.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            if resumed is not None:
                progress.say(f"target and text: from {resumed.prepared}")
                shutil.copytree(resumed.prepared, fresh, copy_function=_link)
            else:
                fresh.mkdir(parents=True)
            if resumed is None or spec.data is not None:
                _make(run, fresh, device)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        os.replace(fresh, final)
    weights = Path(spec.model) if spec.model else final
    target, vocabulary = open_target(weights, config, device), open_vocabulary(weights)
    rows = open_rows(part_folders(final, "rows"))
    width = config.text.tokens if spec.data is None else config.data.max_tokens
    packs = None
    if config.train.pack:
        target.check_isolation()
        packs = pack_rows(rows, width)
        share = int(rows.lengths.clamp(max=width).sum()) / (len(packs) * width)
        progress.say(f"packed: {len(rows)} documents in {len(packs)} rows of {width} tokens, {share:.0%} filled")
    return Prepared(
        final,
        target,
        vocabulary,
        rows,
        grow(
            resumed.chapters if resumed else (),
            met=resumed.batches_met * config.train.batch if resumed else 0,
            rows=len(rows if packs is None else packs),
        ),
        width,
        None if spec.data is None else open_rows(part_folders(final, "held-out")),
        weights,
        packs,
        identity_of_model(weights),
    )


def check_same_material(resumed: Checkpoint, spec: contract.RunSpec) -> None:
    """Raises ConfigError when the checkpoint learned from another target, or from data of another kind."""
    what = f"this run cannot resume {resumed.folder}: it was trained "
    if not resumed.prepared.is_dir():
        raise ConfigError(f"{what}on what was in {resumed.prepared}, which is gone")
    given = read_record(resumed.prepared)
    if given is not None and spec.data is None:
        raise ConfigError(f"{what}on data ({given['path']}), and this run names none")
    if given is None and spec.data is not None:
        raise ConfigError(f"{what}on text that was made there, and this run names data ({spec.data})")
    model = Path(spec.model) if spec.model else resumed.prepared
    if resumed.target is not None and (not model.is_dir() or identity_of_model(model) != resumed.target):
        named = f"{spec.model} is not that one" if spec.model else "this run names no model"
        raise ConfigError(f"{what}with another target: {named}")


def open_target(folder: Path, config: Config, device: torch.device) -> Target:
    """Raises ConfigError."""
    with needing_model(folder):
        return Target(load_model(folder, device), config.drafter.layers)


def open_vocabulary(folder: Path) -> Vocabulary:
    """Raises ConfigError."""
    with needing_model(folder):
        return load_vocabulary(folder)


@contextlib.contextmanager
def needing_model(folder: Path) -> Iterator[None]:
    """What transformers has to say of a folder is the run's error, in a line."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(f"model {folder}: {error}") from error


def another_target(prepared: Prepared, device: torch.device) -> Target:
    """The same one again, for another thread or device."""
    return Target(load_model(prepared.weights, device), len(prepared.target.layer_ids))


def _link(source: str, copy: str) -> None:
    """What was prepared is never changed, so it is shared where the file system can."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copyfile(source, copy)


def _make(run: Run, folder: Path, device: torch.device) -> None:
    """Target, tokenizer and rows, or what is missing of them in `folder`."""
    config, spec = run.config, run.spec
    if spec.model is not None:
        weights = Path(spec.model)
    else:
        weights = folder
        if not (folder / "config.json").is_file():
            _make_target(run, folder, device)
    vocabulary = open_vocabulary(weights)

    def target() -> Target:
        return open_target(weights, config, device)

    if spec.data is not None:
        read_data(config, Path(spec.data), folder, vocabulary, target, run.progress, run.stop)
    else:
        _make_rows(run, folder, vocabulary, target())


def _make_target(run: Run, folder: Path, device: torch.device) -> None:
    config = run.config
    documents = [text for _, text in make_documents(all_templates(), TARGET_DOCUMENTS, f"target {config.seed}")]
    vocabulary = train_vocabulary(documents, config.text.vocabulary)
    model = new_model(config.target, vocabulary.size, config.seed).to(device)
    _train(run, model, encode_rows(vocabulary, documents, config.text.tokens))
    vocabulary.save(folder)
    model.save_pretrained(str(folder))


def _make_rows(run: Run, folder: Path, vocabulary: Vocabulary, target: Target) -> None:
    config = run.config
    learned = [text for _, text in make_documents(templates("train"), config.text.documents, f"drafter {config.seed}")]
    tokens, length = encode_rows(vocabulary, learned, config.text.tokens)
    if config.text.regenerate:
        tokens, length = _regenerate(run, target, tokens, vocabulary)
    writer = RowWriter(folder / ROWS)
    given = config.text.prompt_tokens
    for row, count in zip(tokens.tolist(), length.tolist(), strict=True):
        if count >= given + 2:
            writer.add(row[:count], [position >= given for position in range(count)])
    writer.close()
    if not writer.rows:
        raise ConfigError("no training sequence has a response of two tokens; raise target.steps or text.tokens")


def _train(run: Run, model: torch.nn.Module, rows: Tuple[Tensor, Tensor]) -> None:
    config, progress = run.config, run.progress

    def on_step(step: int, loss: float) -> None:
        run.stop.leave_if_asked()
        progress.detail(f"target step {step} of {config.target.steps}")
        if step % 50 == 0 or step == config.target.steps:
            progress.say(f"target: step {step} of {config.target.steps}, loss {loss:.3f}")

    progress.say(f"target: {sum(p.numel() for p in model.parameters()):,} parameters, trained here")
    train_target(model, *rows, config.target, config.seed, on_step)


def _regenerate(run: Run, target: Target, tokens: Tensor, vocabulary: Vocabulary) -> Tuple[Tensor, Tensor]:
    config, progress = run.config, run.progress
    prompts = tokens[:, : config.text.prompt_tokens].to(target.embed.weight.device)
    done: List[Tuple[Tensor, Tensor]] = []
    for start in range(0, len(prompts), REGENERATION_BATCH):
        progress.detail(f"target writes responses: {start} of {len(prompts)}")
        part = prompts[start : start + REGENERATION_BATCH]
        done.append(continue_greedily(target, part, config.text.tokens, vocabulary.end_ids, run.stop.leave_if_asked))
    progress.say(f"target wrote {len(prompts)} responses")
    return torch.cat([part for part, _ in done]).cpu(), torch.cat([length for _, length in done]).cpu()


def encode_rows(vocabulary: Vocabulary, texts: Sequence[str], width: int) -> Tuple[Tensor, Tensor]:
    """Rows [N, width] filled with the end token, and how many of each count (the first end token does)."""
    rows = [[*vocabulary.encode(text)[: width - 1], vocabulary.end_id] for text in texts]
    filled = [row + [vocabulary.end_id] * (width - len(row)) for row in rows]
    return torch.tensor(filled), torch.tensor([len(row) for row in rows])


def heldout_prompts(config: Config, prepared: Prepared) -> Tuple[Prompts, Prompts]:
    """Prompts that nothing trained on begins with; and, of made text only, prompts of a family it knows nothing of."""
    if prepared.held_out is None:
        return _made_prompts(config, prepared, "heldout_template"), _made_prompts(config, prepared, "heldout_family")
    rows = [prepared.held_out.read(row) for row in range(min(len(prepared.held_out), config.evaluate.prompts))]
    cut = [(ids.tolist(), question_length(learned.tolist(), config)) for ids, learned in rows]
    return [("data", ids[:length]) for ids, length in cut], []


def _made_prompts(config: Config, prepared: Prepared, split: str) -> Prompts:
    documents = make_documents(templates(split), config.evaluate.prompts, f"{split} {config.seed}")
    random.Random(config.seed).shuffle(documents)
    cut = config.text.prompt_tokens
    return [(template.family, prepared.vocabulary.encode(text)[:cut]) for template, text in documents]

"""Text to token ids: a byte-level BPE made here, or the tokenizer of a given model folder.

Rule: the mask token is an existing row of the target's vocabulary that no text ever contains.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, FrozenSet, Iterable, List

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

END = "<|eos|>"
MASK = "<|mask|>"
GENERATION = "generation_config.json"


class Vocabulary:
    """A tokenizer, the ids that end a text and the mask's id. Raises ValueError when there is none for either."""

    def __init__(self, tokenizer: Any, *, rows: int, end_ids: Iterable[int] = ()) -> None:
        """rows: of the target's embedding, which may have more than the tokenizer uses."""
        self.tokenizer = tokenizer
        self.size = rows
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer names no end-of-text token (eos_token)")
        self.end_id: int = tokenizer.eos_token_id
        self.end_ids: FrozenSet[int] = frozenset({self.end_id, *end_ids})
        self.mask_id = self._mask_row()

    def _mask_row(self) -> int:
        """The tokenizer's own mask token, else the first row that no token has: for Qwen3 151669, as is published."""
        own: int | None = self.tokenizer.mask_token_id
        row = len(self.tokenizer) if own is None else own
        if row >= self.size:
            raise ValueError(
                f"the tokenizer uses {len(self.tokenizer)} of {self.size} rows and names no mask token: none is left "
                f"to mask with; a row that has to be added is neither trained nor exported"
            )
        return row

    def encode(self, text: str) -> List[int]:
        ids: List[int] = self.tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(str(folder))


def train_vocabulary(texts: Iterable[str], size: int) -> Vocabulary:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, mask_token=MASK)
    return Vocabulary(wrapped, rows=tokenizer.get_vocab_size())


def load_vocabulary(folder: Path) -> Vocabulary:
    """Raises OSError, naming what is missing, and ValueError."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no model folder {folder}")
    rows = AutoConfig.from_pretrained(str(folder), local_files_only=True).get_text_config().vocab_size
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return Vocabulary(tokenizer, rows=rows, end_ids=_ends_of_generation(folder / GENERATION))


def _ends_of_generation(path: Path) -> List[int]:
    """A chat model ends a turn with another token than a text."""
    if not path.is_file():
        return []
    ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    return [] if ends is None else ends if isinstance(ends, list) else [ends]

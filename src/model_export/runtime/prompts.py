"""Prompts as the batch of token ids that a decoder takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.errors import InputError
from model_export.runtime.tokenizer import Tokenizer

# A text, its token ids, or several of either.
Prompts: TypeAlias = "str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | NDArray[Any]"


@dataclass(frozen=True)
class TokenBatch:
    """Sequences of one length: `ids` and `mask` [batch, tokens] int64, the mask 0 at padding."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]

    def real(self, row: int) -> NDArray[np.int64]:
        """The tokens of one sequence without its padding."""
        return self.ids[row][self.mask[row] != 0]


def is_one_prompt(prompts: Prompts) -> bool:
    """Whether these are one text, or the ids of one sequence."""
    if isinstance(prompts, str):
        return True
    return len(prompts) > 0 and isinstance(prompts[0], int | np.integer)


def token_rows(prompts: Prompts, tokenizer: Tokenizer | None) -> list[list[int]]:
    """The token ids of each prompt; texts get the special tokens that the model expects.

    `tokenizer` may be None where there are only ids. An empty text is the token that begins a
    sequence. Raises InputError for a prompt without any token.
    """
    batch: list[Any] = [prompts] if is_one_prompt(prompts) else list(prompts)
    rows = []
    for number, prompt in enumerate(batch):
        if isinstance(prompt, str):
            assert tokenizer is not None
            row = tokenizer.encode(prompt)
            begin = tokenizer.special_id("bos_token")
            if not row and begin is not None:
                row = [begin]
        else:
            row = [int(token) for token in prompt]
        if not row:
            raise InputError(f"Prompt {number} has no tokens: give at least one.")
        rows.append(row)
    if not rows:
        raise InputError("There is no prompt: give at least one.")
    return rows


def has_text(prompts: Prompts) -> bool:
    """Whether a tokenizer is needed for these."""
    return isinstance(prompts, str) or any(isinstance(prompt, str) for prompt in prompts)


def padded(rows: Sequence[Sequence[int]], pad: int, *, left: bool) -> TokenBatch:
    """One batch of the rows, the shorter ones padded on the left or right with the token `pad`."""
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), pad, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), None) if left else slice(len(row))
        ids[index, place] = row
        mask[index, place] = 1
    return TokenBatch(ids, mask)


def unpadded(ids: NDArray[Any], mask: NDArray[Any] | None) -> list[list[int]]:
    """The rows of `input_ids` [batch, tokens] that `attention_mask` marks as real, or all.

    Raises InputError if they have other shapes.
    """
    if ids.ndim != 2 or (mask is not None and mask.shape != ids.shape):
        raise InputError(
            f"`input_ids` is {list(ids.shape)} and `attention_mask` "
            f"{None if mask is None else list(mask.shape)}: give both as [batch, tokens]."
        )
    if mask is None:
        return [row.tolist() for row in ids]
    return [row[real != 0].tolist() for row, real in zip(ids, mask, strict=True)]

"""Prompts with images or sound of other sizes than the traced ones, as kwargs of `generate`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import PreTrainedModel

from model_export.exporter.probe.variants import Sizes
from model_export.exporter.samples import pad_token
from model_export.manifest import MediaRecord, MultimodalRecord
from model_export.spec import ExportSpec

_IDS, _MASK = "input_ids", "attention_mask"
_GRID = "grid_thw"

# A token, or the number of an image (or sound) with the placeholder that stands for its vectors.
_Part: TypeAlias = "int | tuple[int, int]"


@dataclass(frozen=True)
class MediaPrompts:
    """The traced prompts, cut up into text and what it shows, for others to be made of the parts.

    Without any image or sound they are prompts of text.
    """

    model: PreTrainedModel
    inputs: Mapping[str, Any]
    spec: ExportSpec
    rule: MultimodalRecord

    def resized(self, sizes: Sizes) -> dict[str, Any]:
        """Other images and other words, at `sizes` where everything is dynamic.

        Grids of patches change, too: every other one is narrower, the rest wider. All rows but the
        first have padding on the left, a single one as well.
        """
        draw = np.random.Generator(np.random.PCG64([sizes.batch, sizes.longer + 1000]))
        dynamic = bool(self.spec.config.get("dynamic"))
        traced = self._rows()
        rows: list[list[_Part]] = []
        shown: list[tuple[int, int]] = []
        for row in range(sizes.batch if dynamic else len(traced)):
            parts = traced[row % len(traced)]
            rows.append(self._renumbered(parts, shown))
        media = self._media(shown, draw, other_grids=dynamic)
        lengths = {place: self._lengths(place, media) for place in range(len(self.rule.media))}
        width = self.inputs[_IDS].shape[1]
        if dynamic:
            rows = [_resized(parts, sizes.longer, self._words(), draw) for parts in rows]
        texts = [self._tokens(parts, lengths) for parts in rows]
        if dynamic:
            width = max(map(len, texts)) + 1
        return {**self._padded(texts, width), **media}

    def text_only(self, batch: int, length: int) -> dict[str, torch.Tensor]:
        """Prompts without any image or sound, of equal length."""
        draw = np.random.Generator(np.random.PCG64([batch, length]))
        ids = torch.from_numpy(draw.choice(self._words(), size=(batch, length)))
        return {_IDS: ids, _MASK: torch.ones_like(ids)}

    def _rows(self) -> list[list[_Part]]:
        """The traced prompts without padding, each run of placeholders as what it shows."""
        counts = {
            place: iter(enumerate(self._lengths(place, self.inputs)))
            for place in range(len(self.rule.media))
        }
        places = {media.token: place for place, media in enumerate(self.rule.media)}
        rows = []
        for ids, mask in zip(self.inputs[_IDS].tolist(), self._mask().tolist(), strict=True):
            tokens = [token for token, real in zip(ids, mask, strict=True) if real]
            parts: list[_Part] = []
            while tokens:
                place = places.get(tokens[0])
                if place is None:
                    parts.append(tokens.pop(0))
                    continue
                number, length = next(counts[place])
                parts.append((place, number))
                del tokens[:length]
            rows.append(parts)
        return rows

    def _mask(self) -> torch.Tensor:
        mask = self.inputs.get(_MASK)
        return torch.ones_like(self.inputs[_IDS]) if mask is None else mask

    def _lengths(self, place: int, inputs: Mapping[str, Any]) -> list[int]:
        """How many vectors each image or sound of one kind becomes."""
        media = self.rule.media[place]
        grid = _grid(media, inputs)
        if grid is not None and self.rule.grid_merge:
            return [math.prod(row) // self.rule.grid_merge**2 for row in grid.tolist()]
        tensors = [inputs[name] for name in media.inputs if name in inputs]
        if not tensors:
            return []
        number = self.inputs[next(name for name in media.inputs if name in inputs)].shape[0]
        total = int((self.inputs[_IDS] == media.token).sum())
        return [total // number] * len(tensors[0])

    def _renumbered(self, parts: Sequence[_Part], shown: list[tuple[int, int]]) -> list[_Part]:
        """The same parts, with what they show appended to `shown` and numbered by its kind."""
        renumbered: list[_Part] = []
        for part in parts:
            if isinstance(part, tuple):
                number = sum(place == part[0] for place, _ in shown)
                shown.append(part)
                part = (part[0], number)
            renumbered.append(part)
        return renumbered

    def _media(
        self, shown: Sequence[tuple[int, int]], draw: np.random.Generator, *, other_grids: bool
    ) -> dict[str, torch.Tensor]:
        """The arguments of `generate` for the images and sounds `shown`, with other contents."""
        tensors: dict[str, torch.Tensor] = {}
        for place, media in enumerate(self.rule.media):
            numbers = [number for kind, number in shown if kind == place]
            grid = _grid(media, self.inputs)
            for name in media.inputs:
                if name not in self.inputs or not numbers:
                    continue
                tensor = self.inputs[name]
                if grid is None:
                    tensors[name] = _drawn(tensor[numbers], draw)
                    continue
                wanted = grid[numbers].clone()
                if other_grids:
                    wanted[:, 2] += torch.tensor(
                        [self._wider(row, index) for index, row in enumerate(wanted.tolist())]
                    )
                if media.inputs[name] == _GRID:
                    tensors[name] = wanted
                else:
                    patches = int(wanted.prod(dim=1).sum())
                    whole = tensor[:1].expand(patches, *tensor.shape[1:])
                    tensors[name] = _drawn(whole, draw, tensor)
        return tensors

    def _wider(self, grid: Sequence[int], index: int) -> int:
        merge = self.rule.grid_merge or 1
        return merge if index % 2 == 0 else -merge if grid[2] > merge else 0

    def _words(self) -> list[int]:
        """The traced tokens that are neither placeholders nor padding, nor beside a placeholder."""
        words: list[int] = []
        for parts in self._rows():
            for index, part in enumerate(parts):
                beside = parts[max(0, index - 1) : index + 2]
                if isinstance(part, int) and all(isinstance(other, int) for other in beside):
                    words.append(part)
        return words or [1]

    def _tokens(self, parts: Sequence[_Part], lengths: Mapping[int, Sequence[int]]) -> list[int]:
        tokens: list[int] = []
        for part in parts:
            if isinstance(part, int):
                tokens.append(part)
            else:
                place, number = part
                tokens += [self.rule.media[place].token] * lengths[place][number]
        return tokens

    def _padded(self, rows: Sequence[Sequence[int]], width: int) -> dict[str, torch.Tensor]:
        ids = torch.full((len(rows), width), pad_token(self.model), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        return {_IDS: ids, _MASK: mask, **dict(self._kinds(ids))}

    def _kinds(self, ids: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """What else has a number for each token, and says of what kind the token is."""
        traced = self.inputs[_IDS]
        for name, tensor in self.inputs.items():
            if name in (_IDS, _MASK) or not isinstance(tensor, torch.Tensor):
                continue
            if tensor.shape != traced.shape or tensor.is_floating_point():
                continue
            kinds = torch.zeros(ids.shape, dtype=tensor.dtype)
            for media in self.rule.media:
                of_token = tensor[traced == media.token]
                if len(of_token):
                    kinds[ids == media.token] = of_token[0]
            yield name, kinds


def _grid(media: MediaRecord, inputs: Mapping[str, Any]) -> torch.Tensor | None:
    for name, own in media.inputs.items():
        if own == _GRID and name in inputs:
            grid: torch.Tensor = inputs[name]
            return grid
    return None


def _drawn(
    like: torch.Tensor, draw: np.random.Generator, traced: torch.Tensor | None = None
) -> torch.Tensor:
    """Other floats in the range of the traced ones; integers as they are."""
    if not like.is_floating_point():
        return like.clone()
    known = like if traced is None else traced
    low, high = float(known.min()), float(known.max())
    numbers = draw.random(tuple(like.shape), dtype=np.float32) * (high - low) + low
    return torch.from_numpy(numbers).to(like.dtype)


def _resized(
    parts: Sequence[_Part], longer: int, words: Sequence[int], draw: np.random.Generator
) -> list[_Part]:
    """`parts` with other words at the end, or fewer; what shows something stays."""
    kept = list(parts)
    for _ in range(-longer):
        if len(kept) > 1 and isinstance(kept[-1], int) and isinstance(kept[-2], int):
            kept.pop()
    return kept + [int(word) for word in draw.choice(words, size=max(longer, 0))]

"""What a decoder may be asked for, checked before a graph sees it, and how tokens are cut up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.signature import LOGITS, Signature
from model_export.runtime.errors import InputError

# A graph gives logits for every token it is fed: a prompt is cut so that they stay below this.
_LOGITS_BYTES = 64 << 20
_FEWEST_TOKENS = 32


def check_start(signature: Signature, batch: int, capacity: int) -> None:
    """Raise InputError if the graph can't hold `capacity` positions of `batch` sequences."""
    if batch < 1 or capacity < 1:
        raise InputError(f"A batch of {batch} with {capacity} positions: both must be at least 1.")
    fixed, most = signature.fixed_batch, signature.batch_limit
    if fixed is not None and batch != fixed:
        raise InputError(
            f"`{signature.record.name}` was exported for a batch of {fixed}, not {batch}: pass "
            f"{fixed} sequences, or export it with a dynamic batch."
        )
    if most is not None and batch > most:
        raise InputError(
            f"`{signature.record.name}` takes at most {most} sequences at once, not {batch}: pass "
            "fewer, or export it with wider `dims`."
        )
    if signature.limit is not None and capacity > signature.limit:
        raise InputError(
            f"`{signature.record.name}` holds at most {signature.limit} positions, not {capacity}: "
            "shorten the prompt or ask for fewer tokens, or export it with a longer cache."
        )


def check_fed(
    signature: Signature,
    ids: NDArray[np.int64],
    mask: NDArray[np.int64],
    batch: int,
    past: int,
    capacity: int,
) -> None:
    """Raise InputError if `ids` and `mask` can't follow `past` positions of `batch` sequences."""
    if batch == 0:
        raise InputError("Nothing has been started: call `start` first.")
    if ids.ndim != 2 or ids.shape != mask.shape or len(ids) != batch or not ids.size:
        raise InputError(
            f"Ids {list(ids.shape)} and mask {list(mask.shape)} must both be [{batch}, tokens]."
        )
    if past + ids.shape[1] > capacity:
        raise InputError(
            f"{past} positions are filled and {ids.shape[1]} more make more than the {capacity} "
            "that `start` made room for: start with a larger capacity."
        )
    if not signature.padded and not mask.all():
        raise InputError(
            f"`{signature.record.name}` takes no mask, so it would read padding as text: feed "
            "prompts of equal length, or one at a time."
        )


def steps_of(signature: Signature, batch: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The spans that tokens `start` to `end` are fed in, one call each.

    Raises InputError if the graph takes a fixed number that doesn't go into them.
    """
    size = signature.tokens_at_once
    if signature.fixed and size is not None and (end - start) % size:
        raise InputError(
            f"`{signature.record.name}` was exported for {size} tokens at a time, and {end - start}"
            " isn't a multiple of that: export it with a dynamic sequence."
        )
    if not signature.fixed:
        (logits,) = (t for t in signature.record.outputs if t.name == LOGITS)
        vocabulary = logits.shape[-1] if isinstance(logits.shape[-1], int) else 1 << 18
        affordable = max(_LOGITS_BYTES // (4 * batch * vocabulary), _FEWEST_TOKENS)
        size = min(affordable, size or affordable)
    assert size is not None
    for first in range(start, end, size):
        yield first, min(first + size, end)

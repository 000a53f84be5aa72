"""The graph that takes a prompt where the decode graph takes one token at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.cache_tensors import CACHE, CacheKind
from model_export.runtime.decoders.signature import LOGITS, Signature
from model_export.runtime.graph import Array, Graph, numpy_dtype, plain_name


class Prefill:
    """Runs a prefill component on an empty cache."""

    def __init__(self, graph: Graph, signature: Signature) -> None:
        self.signature = signature
        self._graph = graph
        self._empty = {
            tensor.input.name: np.array(tensor.number, numpy_dtype(tensor.input.dtype))
            for tensor in signature.cache
            if tensor.kind is CacheKind.SCALAR
        }

    def tokens(self, available: int) -> int:
        """How many of the first `available` tokens it takes; 0 if it needs more than there are."""
        size = self.signature.tokens_at_once
        if size is None:
            return available
        if self.signature.fixed:
            return size if available >= size else 0
        return min(size, available)

    def run(self, feeds: Mapping[str, Array]) -> tuple[NDArray[np.float32], dict[str, Array]]:
        """The last position's logits [batch, vocabulary], and the cache by plain name."""
        return self.last(LOGITS, feeds)

    def last(
        self, output: str, feeds: Mapping[str, Array]
    ) -> tuple[NDArray[np.float32], dict[str, Array]]:
        """`output` at the last position [batch, size], and the cache by plain name."""
        outputs = self._graph.run({**self._empty, **feeds})
        return np.array(outputs[output][:, -1], np.float32), {
            plain_name(name): array
            for name, array in outputs.items()
            if plain_name(name).startswith(CACHE)
        }

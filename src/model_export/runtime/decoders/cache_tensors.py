"""The tensors of a graph's cache: what each one is, and how large it is when it's empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from model_export.manifest import ComponentRecord, Manifest, TensorRecord
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import plain_name

CACHE = "cache."
_CROSS = ".cross_attention_cache."


class CacheKind(Enum):
    """How a cache tensor changes from one call to the next."""

    GROWING = "growing"  # [batch, heads, positions, head_dim], longer by the tokens of the call.
    STATIC = "static"  # [batch, heads, length, head_dim], written at the positions of the call.
    STATE = "state"  # Of a fixed size; the output replaces the input.
    SCALAR = "scalar"  # A number without a batch: how much of a layer is filled, or its window.
    CROSS = "cross"  # Of the encoder's tokens; the same until the next `start`.


@dataclass(frozen=True)
class CacheTensor:
    """A tensor that a call takes as `input` and hands on as `output`, None if it doesn't.

    `sizes` are those of an empty cache without the batch: 0 positions if it grows, nothing for a
    number, or for one that a prefill makes. `number` is what a number is at first.
    """

    kind: CacheKind
    input: TensorRecord
    output: TensorRecord | None
    sizes: tuple[int, ...] = ()
    number: int = 0

    @property
    def name(self) -> str:
        """What the eager model calls it."""
        return plain_name(self.input.name)


def static_length(manifest: Manifest) -> int | None:
    """The positions that a static cache has room for; None if the artifact has no static cache."""
    settings = manifest.spec.get("generation_config", {})
    if settings.get("cache_implementation") != "static":
        return None
    length = settings.get("max_cache_len")
    return None if length is None else int(length)


def read_cache(
    record: ComponentRecord,
    manifest: Manifest,
    config: ModelConfig,
    states: Sequence[tuple[TensorRecord, TensorRecord]],
) -> tuple[CacheTensor, ...]:
    """The cache tensors among a record's inputs, and those that its graph keeps by itself.

    Raises ArtifactError where nothing says a size or a number that an empty cache needs.
    """
    if states and static_length(manifest) is not None:
        # transformers 5.24.0 turns what counts the filled positions into a constant.
        raise ArtifactError(
            f"`{record.name}` keeps a static cache as OpenVINO's state, without a count of what is "
            "filled: export it with config stateful=False, or with a growing cache."
        )
    outputs = {plain_name(tensor.name): tensor for tensor in record.outputs}
    pairs = [
        (tensor, outputs.get(plain_name(tensor.name)))
        for tensor in record.inputs
        if plain_name(tensor.name).startswith(CACHE)
    ]
    reader = _Reader(record, manifest, config)
    return tuple(reader.read(before, after) for before, after in (*pairs, *states))


class _Reader:
    def __init__(self, record: ComponentRecord, manifest: Manifest, config: ModelConfig) -> None:
        self._record = record
        self._manifest = manifest
        self._config = config
        self._names = {tensor.name for tensor in record.inputs}

    def read(self, tensor: TensorRecord, output: TensorRecord | None) -> CacheTensor:
        kind = self._kind(tensor)
        if kind is CacheKind.SCALAR:
            return CacheTensor(kind, tensor, output, number=self._number(tensor))
        if kind is CacheKind.CROSS:
            return CacheTensor(kind, tensor, output)
        return CacheTensor(kind, tensor, output, sizes=self._sizes(tensor, kind))

    def _kind(self, tensor: TensorRecord) -> CacheKind:
        layer, _, part = tensor.name.rpartition(".")
        if not tensor.shape:
            return CacheKind.SCALAR
        if _CROSS in tensor.name:
            return CacheKind.CROSS
        if f"{layer}.cumulative_length" in self._names:
            return CacheKind.STATIC
        return CacheKind.GROWING if part in ("keys", "values") else CacheKind.STATE

    def _number(self, tensor: TensorRecord) -> int:
        if not tensor.name.endswith("._sliding_window_tensor"):
            return 0
        if self._config.window is None:
            raise ArtifactError(
                f"`{tensor.name}` needs `sliding_window` in the artifact's config.json: "
                "export it again."
            )
        return self._config.window

    def _sizes(self, tensor: TensorRecord, kind: CacheKind) -> tuple[int, ...]:
        """From the graph, where it leaves one open from another component, or from the config."""
        name = plain_name(tensor.name)
        part = name.split(".")[-2 if name.rpartition(".")[2].isdigit() else -1]
        shapes = [tensor.shape] + [
            other.shape
            for component in self._manifest.components
            for other in (*component.inputs, *component.outputs)
            if plain_name(other.name) == name and len(other.shape) == len(tensor.shape)
        ]
        sizes: list[int] = []
        for axis in range(1, len(tensor.shape)):
            known: list[int | None] = [
                given for shape in shapes if isinstance(given := shape[axis], int)
            ]
            if axis == 2 and kind is CacheKind.GROWING:
                known = [0]
            elif axis == 2 and kind is CacheKind.STATIC:
                known.append(static_length(self._manifest))
            known.append(self._config.cache_size(part, axis))
            size = next((size for size in known if size is not None), None)
            if size is None:
                raise ArtifactError(
                    f"`{self._record.name}` takes `{tensor.name}` {list(tensor.shape)}, and "
                    f"neither manifest nor config.json say its size at axis {axis}: export it "
                    "with that axis static."
                )
            sizes.append(size)
        return tuple(sizes)

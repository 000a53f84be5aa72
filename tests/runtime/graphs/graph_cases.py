"""What a graph must do in every runtime, with tiny artifacts and the eager models beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from exporter.backends.tiny_models import (
    HEAD_DIM,
    KV_HEADS,
    LAYERS,
    export,
    left_padded,
    make_spec,
    positions_of,
    tiny_bert,
)
from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.graph import Graph, open_graph


@dataclass(frozen=True)
class Component:
    """An exported component: the eager model, and where its graph is."""

    model: PreTrainedModel
    export_format: str
    folder: Path
    record: ComponentRecord

    def graph(self) -> Graph:
        return open_graph(self.folder, self.export_format, self.record)


def export_bert(export_format: str, folder: Path, dtype: torch.dtype = torch.float32) -> Component:
    """The plain export of a tiny BERT."""
    model = tiny_bert().to(dtype)
    spec = make_spec(export_format, {"dynamic": True}, dtype=str(dtype).removeprefix("torch."))
    records = export(model, left_padded(2, 8, 3), spec, folder)
    return Component(model, export_format, folder, records["model"])


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def check_plain(component: Component, tolerance: float) -> None:
    """Hidden states as the eager model's at a shape that was never traced, in the record's order.

    Results are the caller's: a second call leaves them as they are.
    """
    graph = component.graph()
    inputs = left_padded(3, 11, 4, seed=1)
    actual = graph.run(arrays(inputs))
    assert list(actual) == [tensor.name for tensor in component.record.outputs]
    kept = {name: array.copy() for name, array in actual.items()}
    graph.run(arrays(left_padded(1, 5, 0, seed=2)))
    with torch.no_grad():
        expected = component.model(**inputs)
    real = inputs["attention_mask"].bool().numpy()
    for name, array in actual.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, kept[name])
        eager = expected[name].float().numpy()
        if array.ndim == 3:
            array, eager = array[real], eager[real]
        np.testing.assert_allclose(array, eager, atol=tolerance)


def check_cache_travels(component: Component) -> None:
    """A prompt in one call and its next tokens in another, cache handed over by the caller."""
    graph = component.graph()
    inputs = left_padded(3, 11, 4, seed=3)
    positions = positions_of(inputs["attention_mask"])
    with torch.no_grad():
        expected = component.model(**inputs, position_ids=positions).logits.numpy()
    fed = arrays({**inputs, "position_ids": positions})
    cache = {
        f"input.cache.layers.{layer}.{part}": np.zeros((3, KV_HEADS, 0, HEAD_DIM), np.float32)
        for layer in range(LAYERS)
        for part in ("keys", "values")
    }
    for start, end in ((0, 8), (8, 11)):
        outputs = graph.run(
            {
                "input_ids": fed["input_ids"][:, start:end],
                "position_ids": fed["position_ids"][:, start:end],
                "attention_mask": fed["attention_mask"][:, :end],
                **cache,
            }
        )
        real = fed["attention_mask"][:, start:end].astype(bool)
        np.testing.assert_allclose(outputs["logits"][real], expected[:, start:end][real], atol=1e-5)
        cache = {name: outputs[name.replace("input.", "output.", 1)] for name in cache}
        assert {array.shape for array in cache.values()} == {(3, KV_HEADS, end, HEAD_DIM)}


def check_inputs_stay(component: Component, length: int) -> None:
    """A graph that writes to a static cache writes to a copy of what it's fed."""
    inputs = left_padded(2, 6, 0)
    seen = np.arange(length)[None] <= np.arange(6)[:, None]
    masks = {
        tensor.name: np.broadcast_to(seen, (2, 1, 6, length)).copy()
        for tensor in component.record.inputs
        if tensor.name.startswith("attention_mask")
    }
    cache = {
        tensor.name: np.zeros((2, KV_HEADS, length, HEAD_DIM) if tensor.shape else (), tensor.dtype)
        for tensor in component.record.inputs
        if tensor.name.startswith("input.cache")
    }
    positions = positions_of(inputs["attention_mask"]).numpy()
    outputs = component.graph().run(
        {"input_ids": inputs["input_ids"].numpy(), "position_ids": positions, **masks, **cache}
    )
    assert not any(array.any() for array in cache.values())
    assert outputs["output.cache.layers.0.keys"][:, :, :6].all()
    assert outputs["output.cache.layers.0.cumulative_length"] == 6
    with torch.no_grad():
        expected = component.model(**inputs).logits.numpy()
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


def check_wrong_inputs(component: Component) -> None:
    """What doesn't fit is named before the runtime sees it."""
    graph = component.graph()
    good = arrays(left_padded(2, 8, 3))
    with pytest.raises(InputError, match="no input `input_idz`. Did you mean `input_ids`"):
        graph.run({**good, "input_idz": good["input_ids"]})
    with pytest.raises(InputError, match="needs `attention_mask`"):
        graph.run({"input_ids": good["input_ids"]})
    with pytest.raises(InputError, match=r"`input_ids` as int64 .* not as int32 \[2, 8\]"):
        graph.run({**good, "input_ids": good["input_ids"].astype(np.int32)})
    with pytest.raises(InputError, match=r"not as int64 \[16\]"):
        graph.run({**good, "input_ids": good["input_ids"].reshape(-1)})
    graph.run(good)


def check_damage(component: Component, tmp_path: Path) -> None:
    """A cut file, and a record of another graph, are no artifacts."""
    record = component.record
    for name in (record.file, *record.weights):
        (tmp_path / name).write_bytes((component.folder / name).read_bytes())
    other = replace(record, inputs=(*record.inputs, TensorRecord("more", "int64", ("?",))))
    with pytest.raises(ArtifactError, match="manifest"):
        open_graph(tmp_path, component.export_format, other)
    whole = (tmp_path / record.file).read_bytes()
    (tmp_path / record.file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match=f"can't load {record.file}"):
        open_graph(tmp_path, component.export_format, record)

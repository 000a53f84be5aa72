"""Dynamic dimensions under names that people can read."""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from model_export.exporter.backends.onnx.passes.shapes import shaped_values

# torch's symbols: s0, s70, and u0 for sizes that depend on data.
_SYMBOL = re.compile(r"\b[su]\d+\b")
_RANGES = "pkg.torch.export.ExportedProgram.range_constraints"

# Names of axes by the last part of an input's name; every other axis 0 is a batch.
_AXES: Mapping[str, tuple[str, ...]] = {
    "input_ids": ("batch", "sequence"),
    "inputs_embeds": ("batch", "sequence"),
    "position_ids": ("batch", "sequence"),
    "token_type_ids": ("batch", "sequence"),
    "attention_mask": ("batch", "total_sequence"),
    "keys": ("batch", "heads", "past_sequence", "head_dim"),
    "values": ("batch", "heads", "past_sequence", "head_dim"),
    "decoder_input_ids": ("batch", "decoder_sequence"),
    "decoder_attention_mask": ("batch", "decoder_total_sequence"),
    "encoder_hidden_states": ("batch", "encoder_sequence"),
    "last_hidden_state": ("batch", "encoder_sequence"),
    "pixel_values": ("batch", "channels", "height", "width"),
    "input_features": ("batch", "features", "frames"),
}


class NameDimensionsPass(InPlacePass):
    """Renames torch's symbols everywhere: `s10` to `batch`, `s54 + s70` to `past + sequence`.

    torch.onnx forgets the names of `torch.export.Dim` when it is handed an exported program
    (2.12.0), so the target's names come from `requested`: input tensor -> axis -> name. A symbol
    that the target doesn't name is called after the first input and axis that has it, by a table
    of usual names. Two symbols never get one name: equal names are equal sizes.
    """

    def __init__(self, requested: Mapping[str, Mapping[int, str]]) -> None:
        super().__init__()
        self._requested = requested

    def call(self, model: onnx_ir.Model) -> PassResult:
        names = self._choose(model)
        if not names:
            return PassResult(model, False)

        def rename(text: str) -> str:
            return _SYMBOL.sub(lambda match: names.get(match.group(), match.group()), text)

        for value in shaped_values(model):
            if any(isinstance(dim, onnx_ir.SymbolicDim) for dim in value.shape):
                value.shape = onnx_ir.Shape(
                    [
                        onnx_ir.SymbolicDim(rename(dim.value))
                        if isinstance(dim, onnx_ir.SymbolicDim) and dim.value
                        else dim
                        for dim in value.shape
                    ]
                )
        if _RANGES in model.graph.metadata_props:
            model.graph.metadata_props[_RANGES] = rename(model.graph.metadata_props[_RANGES])
        return PassResult(model, True)

    def _choose(self, model: onnx_ir.Model) -> dict[str, str]:
        symbols = [
            (value.name.removeprefix("input."), axis, dim.value)
            for value in model.graph.inputs
            if value.name and value.shape is not None
            for axis, dim in enumerate(value.shape)
            if isinstance(dim, onnx_ir.SymbolicDim) and dim.value and _SYMBOL.fullmatch(dim.value)
        ]
        names: dict[str, str] = {}
        for tensor, axis, symbol in symbols:
            if symbol not in names and axis in self._requested.get(tensor, {}):
                names[symbol] = self._requested[tensor][axis]
        for tensor, axis, symbol in symbols:
            if symbol not in names:
                names[symbol] = _free_name(tensor, axis, names)
        return names


def _free_name(tensor: str, axis: int, names: Mapping[str, str]) -> str:
    last = tensor.rpartition(".")[2]
    usual = _AXES.get(last, ("batch",))
    stem = usual[axis] if axis < len(usual) else f"{last}_axis_{axis}"
    taken = set(names.values())
    if stem in taken:
        # Another size that is usually the same: torch found no reason why they must be equal.
        stem = f"{tensor.replace('.', '_')}_{stem}"
    return stem

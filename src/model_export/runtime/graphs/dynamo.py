"""A component as the program that torch.export wrote, run by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary
from zipfile import BadZipFile

import torch
from torch.utils import _pytree as pytree

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import ArtifactError, first_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.inputs import check_inputs
from model_export.runtime.graphs.saved_program import load
from model_export.runtime.graphs.torch_arrays import to_array, to_tensor


class Call:
    """A program called with flat tensors, in the order of its record."""

    def __init__(
        self, record: ComponentRecord, program: torch.export.ExportedProgram, device: str
    ) -> None:
        self.record = record
        # The tracer assumes that no size is 0 or 1, and torch 2.12.0 turns that into a check of
        # every call: a growing cache that starts empty then refuses a prompt of three tokens
        # ("Guard failed: attention_mask.size()[1] >= 4"). The manifest has the sizes that hold.
        module = program.module(check_guards=False)
        module.validate_inputs = False
        self._module = module.to(device)
        _, kwargs = program.example_inputs
        self._leaves, self._spec = pytree.tree_flatten(kwargs)
        self._places = [
            place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)
        ]
        # The example's tensors aren't used again, and may be large.
        for place in self._places:
            self._leaves[place] = None
        if len(self._places) != len(record.inputs):
            raise ArtifactError(
                f"{record.file} takes {len(self._places)} tensors and its manifest says "
                f"{len(record.inputs)}: export it again."
            )

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The output tensors in the record's order; the program may write to its inputs."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        with torch.no_grad():
            output = self._module(**pytree.tree_unflatten(leaves, self._spec))
        return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


# Programs in use, by file and device: a graph and a decoder of one component share its weights, and
# to load a program takes longer than to run it a few times.
_OPEN: WeakValueDictionary[tuple[str, int, int, str], Call] = WeakValueDictionary()


class DynamoGraph:
    """Satisfies `model_export.runtime.graph.Graph`."""

    def __init__(self, call: Call, device: str) -> None:
        self.record = call.record
        self._call = call
        self._device = device

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One call; arrays that the caller may keep. Raises InputError for what doesn't fit."""
        check_inputs(self.record, inputs)
        # A copy: the program may write to its inputs.
        tensors = [
            to_tensor(inputs[tensor.name], tensor.dtype).to(self._device)
            for tensor in self.record.inputs
        ]
        return {
            tensor.name: to_array(result)
            for tensor, result in zip(self.record.outputs, self._call(tensors), strict=True)
        }


def open_graph(folder: Path, record: ComponentRecord, device: str = "cpu") -> DynamoGraph:
    """Load the component. Raises ArtifactError if torch can't."""
    return DynamoGraph(open_call(folder, record, device), device)


def open_call(folder: Path, record: ComponentRecord, device: str = "cpu") -> Call:
    """The program, ready to be called. Raises ArtifactError if torch can't load it.

    One that is in use is handed out again, if its file is still the same.
    """
    path = (folder / record.file).resolve()
    try:
        file = path.stat()
        key = (str(path), file.st_ino, file.st_mtime_ns, device)
        call = _OPEN.get(key)
        if call is not None and call.record == record:
            return call
        program = load(path)
    except (RuntimeError, OSError, BadZipFile, KeyError, AttributeError, ImportError) as error:
        reason = first_line(error)
        raise ArtifactError(
            f"torch {torch.__version__} can't load {record.file}: {reason}. Export it again, or "
            "install the transformers of the manifest's `engine`."
        ) from error
    call = Call(record, program, device)
    _OPEN[key] = call
    return call

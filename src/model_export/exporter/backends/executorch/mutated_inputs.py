"""Which outputs a lowered program has beside those of the model: the inputs it writes to."""

from __future__ import annotations

from dataclasses import replace

from executorch.exir.program import ExecutorchProgramManager
from torch.export.graph_signature import OutputKind

from model_export.exporter.backends.dynamo.signature import Signature

# In front of the name of an input that comes out updated.
PREFIX = "updated."


def with_mutated_inputs(traced: Signature, program: ExecutorchProgramManager) -> Signature:
    """`traced` with the outputs as `program` has them.

    ExecuTorch hands each input that the graph writes to (the tensors of a static cache) out before
    the model's own outputs, so that a caller in C++ can bind both to one buffer; the model returns
    the cache as well, so its tensors come out twice. Raises RuntimeError if the count differs from
    what the `.pte` says.
    """
    signature = program.exported_program().graph_signature
    inputs = dict(zip(signature.user_inputs, traced.inputs, strict=True))
    updated = [
        inputs[str(spec.target)]
        for spec in signature.output_specs
        if spec.kind == OutputKind.USER_INPUT_MUTATION
    ]
    outputs = (
        *(replace(tensor, name=PREFIX + tensor.name.removeprefix("input.")) for tensor in updated),
        *traced.outputs,
    )
    planned = len(program.executorch_program.execution_plan[0].outputs)
    if planned != len(outputs):
        raise RuntimeError(f"The .pte has {planned} outputs, but its signature {len(outputs)}.")
    return replace(traced, outputs=outputs)

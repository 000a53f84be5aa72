"""A plain export in ExecuTorch's runtime, against the eager model."""

from __future__ import annotations

from pathlib import Path

import torch
from executorch.runtime import Runtime

from exporter.backends.tiny_models import left_padded, tiny_bert
from model_export.manifest import ComponentRecord


def test_bert_at_the_traced_shape_and_at_others(bert: tuple[ComponentRecord, Path]) -> None:
    model = tiny_bert()
    record, file = bert
    order = [tensor.name for tensor in record.inputs]
    method = Runtime.get().load_program(file).load_method("forward")
    for batch, sequence in ((2, 8), (3, 13), (1, 64)):
        inputs = left_padded(batch, sequence, 3, seed=1)
        result = method.execute([inputs[name] for name in order])[0]
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)

"""onnxscript's pattern matcher without its quadratic search.

onnxscript 0.7.0, `rewriter/_matcher.py`, `SimplePatternMatcher.match`: for a pattern with several
output nodes it first builds an index of the whole graph by operator, and only then looks at the
node it was called for. It is called for every node, so the optimiser is quadratic in the model's
depth: over a third of the CPU time of a 30-layer export. A pattern's first output is always matched
against that very node, so a node with another operator can be refused before any work.
`tests/exporter/backends/onnx/test_fast_matching.py` fails once upstream does this by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir
from onnxscript.rewriter import _basics
from onnxscript.rewriter._matcher import SimplePatternMatcher


@contextmanager
def fast_matching() -> Iterator[None]:
    """Refuse nodes by their operator first while the block runs; results stay the same."""
    original = SimplePatternMatcher.match

    @functools.wraps(original)
    def match(
        self: SimplePatternMatcher,
        model: onnx_ir.Model,
        graph_or_function: onnx_ir.Graph | onnx_ir.Function,
        node: onnx_ir.Node,
        **options: Any,
    ) -> _basics.MatchResult:
        if not self.pattern.has_single_output_node:
            wanted = self.pattern.output_nodes[0].op_identifier()
            # None: the pattern takes any operator.
            if wanted is not None and wanted != node.op_identifier():
                return _basics.MatchResult().fail("Another operator than the pattern's first.")
        return original(self, model, graph_or_function, node, **options)

    SimplePatternMatcher.match = match
    try:
        yield
    finally:
        SimplePatternMatcher.match = original

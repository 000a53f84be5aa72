"""Traces without the stack trace of each node, and without advice to whom it doesn't concern."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch.fx


@contextmanager
def no_stack_traces() -> Iterator[None]:
    """Keep FX from recording where each node was made, while the block runs.

    A stack trace holds paths of this machine, and collecting, formatting and copying one for every
    node is about 6 % of an export's time (torch 2.12.0, where `torch.fx.config` is a plain module
    without the `patch` of other configs).

    Also keeps the engine from advising `dynamic_shapes` to a user who chose `dynamic`.
    """
    before = torch.fx.config.do_not_emit_stack_traces
    advice = logging.getLogger("transformers.exporters.exporter_dynamo")
    level = advice.level
    torch.fx.config.do_not_emit_stack_traces = True
    advice.setLevel(logging.ERROR)
    try:
        yield
    finally:
        torch.fx.config.do_not_emit_stack_traces = before
        advice.setLevel(level)

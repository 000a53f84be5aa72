"""Traces without the stack trace of each node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.fx


@contextmanager
def no_stack_traces() -> Iterator[None]:
    """Keep FX from recording where each node was made, while the block runs.

    A stack trace holds paths of this machine, and collecting, formatting and copying one for every
    node is about 6 % of an export's time (torch 2.12.0, where `torch.fx.config` is a plain module
    without the `patch` of other configs).
    """
    before = torch.fx.config.do_not_emit_stack_traces
    torch.fx.config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        torch.fx.config.do_not_emit_stack_traces = before

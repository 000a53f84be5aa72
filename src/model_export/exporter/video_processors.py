"""Processors of models that also see videos, where torchvision isn't there to read any.

transformers 5.24.0: the processor of such a model (Qwen2-VL) can't be made without a video
processor, and video processors need torchvision, which no resolve has. Images and text don't.
`tests/exporter/test_video_processors.py` fails once upstream does without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import ProcessorMixin
from transformers.processing_utils import MODALITY_TO_AUTOPROCESSOR_MAPPING
from transformers.utils import is_torchvision_available

_VIDEO = "video_processor"


class NoVideoProcessor:
    """What a processor loads in the place of its video processor."""

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> None:
        """None, which stands for a part that isn't there."""


@contextmanager
def no_videos() -> Iterator[None]:
    """While the block loads a processor: it may have None for a video processor."""
    if is_torchvision_available():
        yield
        return
    names = MODALITY_TO_AUTOPROCESSOR_MAPPING._MAPPING_NAMES
    own, check = names[_VIDEO], ProcessorMixin.check_argument_for_proper_class

    def check_others(self: ProcessorMixin, name: str, argument: Any) -> Any:
        return None if name == _VIDEO and argument is None else check(self, name, argument)

    names[_VIDEO] = (__name__, NoVideoProcessor.__name__)
    ProcessorMixin.check_argument_for_proper_class = check_others
    try:
        yield
    finally:
        names[_VIDEO] = own
        ProcessorMixin.check_argument_for_proper_class = check

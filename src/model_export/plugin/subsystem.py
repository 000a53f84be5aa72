"""Options of the plugin."""

from __future__ import annotations

from pants.option.option_types import SkipOption, StrOption
from pants.option.subsystem import Subsystem


class ModelExport(Subsystem):
    # `export-model` would collide with the target's alias: Pants 2.17.1 then doesn't start.
    options_scope = "model-export"
    name = "model-export"
    help = "Exports of Hugging Face models."

    checkpoint_resolve = StrOption(
        default="dynamo",
        help=(
            "The resolve that turns GGUF files into safetensors and draws random weights. One for "
            "all exports, so that they share the result. It needs torch, transformers and gguf."
        ),
    )


class ModelExportTest(Subsystem):
    options_scope = "model-export-test"
    name = "verification of exported models"
    help = "What `test` does with `export_model` targets."

    skip = SkipOption("test")

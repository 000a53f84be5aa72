"""The field `inputs_from`: a Python file that makes a model's sample inputs, or its components."""

from __future__ import annotations

import os

from pants.engine.target import AsyncFieldMixin, SecondaryOwnerMixin
from pants.source.filespec import Filespec
from pants.util.strutil import help_text

from model_export.plugin.fields import CheckedStringField
from model_export.plugin.references import check_inputs_from, inputs_path


class InputsFromField(CheckedStringField, AsyncFieldMixin, SecondaryOwnerMixin):
    alias = "inputs_from"
    help = help_text(
        """
        A Python file, relative to the BUILD file (`":inputs.py"`), or the address of a
        `python_source` with one. It defines `sample_inputs(model, tokenizer)`, which returns what
        the model is traced with, or `components(model, inputs)`, which returns the graphs to export
        as `{name: (module, keyword arguments)}`, or both. In place of `sample_inputs`.

        It runs in the export process: without network, in the resolve of the export, with what it
        imports of this repository. docs/inputs.md has more.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        return check_inputs_from(value)

    @property
    def filespec(self) -> Filespec:
        """The file, so that `--changed-since` and file arguments find the target."""
        path = None if self.value is None else inputs_path(self.value)
        if path is None:
            return {"includes": []}
        return {"includes": [os.path.join(self.address.spec_path, path)]}

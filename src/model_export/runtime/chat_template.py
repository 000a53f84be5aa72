"""A conversation as the prompt that the checkpoint was trained on, by its own Jinja template.

What a template may do is what transformers 5.24 lets it do (`utils/chat_template_utils.py`): the
immutable sandbox, `raise_exception`, `strftime_now`, `tojson` without HTML escapes, loop controls
and `{% generation %}` blocks. Templates come with checkpoints and are code of strangers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from model_export.runtime.artifact import read_settings
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.tokenizer import Tokenizer

TEMPLATE_FILE = "chat_template.jinja"


class ChatTemplate:
    """The chat template of an artifact, with the special tokens of its tokenizer."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        """Read it. Raises ArtifactError if the checkpoint brought none, or a damaged one."""
        sources = _sources(folder, tokenizer.config)
        if not sources:
            raise ArtifactError(
                f"{folder} has no chat template: use `generate` with a prompt, or add "
                f"{TEMPLATE_FILE} to the checkpoint and export again."
            )
        self._special_tokens = tokenizer.special_tokens
        try:
            environment = _environment()
            self._templates = {
                name: environment.from_string(source) for name, source in sources.items()
            }
        except jinja2.TemplateError as error:
            raise ArtifactError(f"{folder} has a chat template with an error: {error}.") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for the assistant's next message, all special tokens written out.

        `variables` are what the template takes besides (`enable_thinking=False`). Raises InputError
        for a conversation that the template refuses.
        """
        named = "tool_use" if tools and "tool_use" in self._templates else "default"
        template = self._templates.get(named) or next(iter(self._templates.values()))
        try:
            return template.render(
                messages=[_without_none(message) for message in messages],
                tools=tools,
                documents=None,
                add_generation_prompt=True,
                **{**self._special_tokens, **variables},
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise InputError(f"The chat template refuses this conversation: {error}.") from error


def _sources(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The templates by name; the file wins over what older checkpoints have in their configs."""
    file = folder / TEMPLATE_FILE
    if file.is_file():
        return {"default": file.read_text(encoding="utf-8")}
    found = read_settings(folder / "chat_template.json").get("chat_template")
    found = found or tokenizer_config.get("chat_template")
    if isinstance(found, list):
        return {item["name"]: item["template"] for item in found}
    return {"default": found} if found else {}


def _without_none(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without keys set to None: templates ask for a key's presence, and would print `None`."""
    return {key: value for key, value in message.items() if value is not None}


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=_strftime_now,
        dict=_Dict(),
        namespace=_Namespace,
    )
    return environment


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training."""

    tags = frozenset({"generation"})

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Dict:
    """`dict` for templates, without the attributes of the type."""

    def __call__(self, *items: Any, **named: Any) -> dict[Any, Any]:
        return dict(*items, **named)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` for templates, without access to attributes that start with `_`."""

    def __init__(*items: Any, **named: Any) -> None:
        self, *rest = items
        values = dict(*rest, **named)
        for name in values:
            _check_attribute(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a template can't set {name!r} on a namespace")

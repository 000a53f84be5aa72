"""Chat templates, rendered as transformers renders them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from model_export.runtime.chat_template import ChatTemplate
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.tokenizer import Tokenizer

CHATML = """\
{{- bos_token -}}
{% if messages[0].role != 'system' %}
    {% set messages = [{"role": "system", "content": "Be kind."}] + messages %}
{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
# What else today's templates use, a line each.
EVERYTHING = """\
{% set state = namespace(seen=0, name='<&>') %}
{% for message in messages %}
{% set state.seen = state.seen + 1 %}
{% if loop.index > 3 %}{% break %}{% endif %}
{{ loop.index }} {{ message.role }}: {{ message.content | tojson }}
{% if 'tool_calls' in message %}{{ message.tool_calls | tojson(indent=2) }}{% endif %}
{% endfor %}
{% generation %}{{ state.seen }} {{ state.name }}{% endgeneration %}
{{ dict(a=1, **{'b': 'ü'}) | tojson(ensure_ascii=True) }} {{ dict.fromkeys('xy', 1) }}
{{ strftime_now('%Y')[:2] }} {{ tools | tojson if tools else 'no tools' }}
{{ documents is none }} {{ unk_token is defined }} {{ enable_thinking | default('unset') }}
"""
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "  1 < 2 & 'ja' "},
    {"role": "assistant", "content": "ünf", "tool_calls": None},
    {
        "role": "user",
        "content": "<b>bold</b>",
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}],
    },
    {"role": "user", "content": "last"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<f> & ünf"}}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with the smallest tokenizer, `<s>` and `</s>` being its special tokens."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Backend(models.WordLevel({"<s>": 0, "</s>": 1}, "<s>")),
        bos_token="<s>",
        eos_token="</s>",
    )
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def _render(folder: Path, messages: list[dict[str, Any]], **options: Any) -> str:
    return ChatTemplate(folder, Tokenizer(folder)).render(messages, **options)


@pytest.mark.parametrize("template", [CHATML, EVERYTHING], ids=["chatml", "everything"])
@pytest.mark.parametrize(
    "options",
    [{}, {"tools": TOOLS}, {"enable_thinking": False}],
    ids=["plain", "tools", "variable"],
)
def test_prompts_are_those_of_transformers(
    folder: Path, template: str, options: dict[str, Any]
) -> None:
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    expected = PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(
        MESSAGES, tokenize=False, add_generation_prompt=True, **options
    )
    assert _render(folder, MESSAGES, **options) == expected
    assert "1 &lt; 2" not in expected and "1 < 2" in expected


def test_the_template_of_a_config(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    named = [
        {"name": "default", "template": "{{ messages[0].content }}"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]
    for found, tools, expected in [
        ("{{ messages | length }}", None, "4"),
        (named, None, MESSAGES[0]["content"]),
        (named, TOOLS, "1 tools"),
    ]:
        path.write_text(json.dumps({**config, "chat_template": found}), encoding="utf-8")
        assert _render(folder, MESSAGES, tools=tools) == expected


def test_a_conversation_that_the_template_refuses(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(InputError, match="refuses this conversation: Roles must alternate"):
        _render(folder, MESSAGES)


@pytest.mark.parametrize(
    "escape",
    [
        "{{ messages.append({}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace(__init__=1) }}",
        "{% set state = namespace() %}{% set state._x = 1 %}",
        "{{ dict.__init__.__globals__ }}",
    ],
)
def test_a_template_stays_in_its_sandbox(folder: Path, escape: str) -> None:
    (folder / "chat_template.jinja").write_text(escape)
    with pytest.raises(InputError, match="refuses"):
        _render(folder, MESSAGES)


def test_a_damaged_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ArtifactError, match="a chat template with an error"):
        _render(folder, MESSAGES)


def test_no_template(folder: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no chat template: .* add chat_template\.jinja"):
        _render(folder, MESSAGES)

"""A loaded artifact: what apps call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model_export.runtime.arrays import as_array, input_dtypes
from model_export.runtime.artifact import Artifact, read_artifact
from model_export.runtime.chat_template import ChatTemplate
from model_export.runtime.decoder import Decoder, open_decoder
from model_export.runtime.embedding import HIDDEN_STATES, Embedder
from model_export.runtime.errors import ArtifactError, InputError, RuntimeModelError
from model_export.runtime.generation import Completion, Generation, Piece
from model_export.runtime.graph import Array, Graph, check_device, open_graph
from model_export.runtime.preparation import MAX_NEW_TOKENS, GenerationOptions, prepare
from model_export.runtime.prompts import Prompts, has_text, is_one_prompt
from model_export.runtime.tokenizer import TOKENIZER_FILE, Tokenizer

Message: TypeAlias = Mapping[str, Any]
# Called once a new token with the number of its prompt and the text that may be shown since.
OnToken: TypeAlias = Callable[[int, str], None]


def load(path: str | Path, device: str = "cpu") -> Model:
    """The artifact in the folder `path`, on `device` ("cpu" or, where its runtime can, "cuda").

    Graphs are loaded when they are first used, or by `warm_up`. Raises ArtifactError for a folder
    that is no artifact, or a device that its runtime doesn't have.
    """
    return Model(read_artifact(path), device)


class Model:
    """One artifact in its runtime; not to be shared between threads.

    What it can do depends on what was exported: `generates` and `embeds` say so.
    """

    def __init__(self, artifact: Artifact, device: str = "cpu") -> None:
        check_device(artifact.manifest.export_format, device)
        self.artifact = artifact
        self._device = device
        self._graphs: dict[str, Graph] = {}
        self._running: Generation | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """The names of the artifact's graphs."""
        return tuple(record.name for record in self.artifact.manifest.components)

    @property
    def generates(self) -> bool:
        """Whether `generate` works: the artifact was exported for generation."""
        return self.artifact.generates

    @property
    def embeds(self) -> bool:
        """Whether `embed` works: hidden states come out, and texts can go in."""
        outputs = {tensor.name for tensor in self.artifact.manifest.components[0].outputs}
        return not self.generates and HIDDEN_STATES in outputs and self._has_tokenizer

    @property
    def _has_tokenizer(self) -> bool:
        return (self.artifact.folder / TOKENIZER_FILE).is_file()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer. Raises ArtifactError if it has no `tokenizer.json`."""
        return Tokenizer(self.artifact.folder)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The checkpoint's chat template. Raises ArtifactError if it has none."""
        return ChatTemplate(self.artifact.folder, self.tokenizer)

    @cached_property
    def _decoder(self) -> Decoder:
        return open_decoder(self.artifact.folder, self.artifact.manifest, self._device)

    @cached_property
    def _embedder(self) -> Embedder:
        return Embedder(self.artifact, self._graph(None))

    def warm_up(self) -> None:
        """Load now what the first `generate` or `embed` would load. Raises ArtifactError."""
        if self.generates:
            self._decoder  # noqa: B018
        elif self.embeds:
            self._embedder  # noqa: B018
        else:
            for name in self.components:
                self._graph(name)

    def forward(self, component: str | None = None, /, **inputs: ArrayLike) -> dict[str, Array]:
        """Run one graph once: its outputs by name.

        `component` names it where there are several. Lists and numbers become arrays of the
        input's dtype; arrays must have it already (float32 for bfloat16). Raises InputError.
        """
        graph = self._graph(component)
        dtypes = input_dtypes([graph.record])
        return graph.run({name: as_array(name, each, dtypes) for name, each in inputs.items()})

    def embed(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Vectors [texts, dimension], pooled and normalised as the checkpoint says.

        Raises ArtifactError if the artifact makes none.
        """
        return self._embedder.embed([texts] if isinstance(texts, str) else texts)

    def generate(
        self,
        prompts: Prompts | None = None,
        *,
        max_new_tokens: int = MAX_NEW_TOKENS,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        stop: str | Sequence[str] = (),
        seed: int | Sequence[int] | None = None,
        stream: OnToken | None = None,
        **inputs: ArrayLike,
    ) -> list[Completion]:
        """Continue each prompt, a text or token ids; one result for each, in order.

        At `temperature` 0 each token is the most likely one. Otherwise it is drawn, from the
        `top_k` most likely ones, and of those from the ones that reach `top_p` together. A prompt's
        draws depend on `seed` and its place alone; with a seed for each prompt, on that alone.
        `top_k`, `top_p` and `repetition_penalty` are the checkpoint's own, or off, unless given.
        A sequence ends at the model's own end, at a string of `stop` (which is left out), or after
        `max_new_tokens`.
        `stream(prompt's number, text)` is called at each new token.

        `inputs` are what the model takes beside tokens (`input_features=` of speech;
        `decoder_input_ids=` [batch, tokens] to begin a transcript with), or `input_ids=` and
        `attention_mask=` in place of prompts.

        Raises InputError for what can't be done, ArtifactError if the artifact wasn't exported for
        generation.
        """
        options = GenerationOptions(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop=stop,
            seed=seed,
        )
        generation = self._prepare(prompts, inputs, options)
        for piece in self._pieces(generation):
            if stream is not None:
                stream(piece.row, piece.text)
        return generation.completions

    def stream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Iterator[str]:
        """Continue one prompt: its text, piece by piece, as `generate` would return it."""
        if not is_one_prompt(prompt):
            raise InputError("`stream` takes one prompt: use `generate(..., stream=...)`.")
        self.tokenizer  # noqa: B018  Raises where tokens can't become text.
        generation = self._prepare(prompt, {}, options)
        return (piece.text for piece in self._pieces(generation) if piece.text)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        stream: OnToken | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Completion:
        """The assistant's answer to `messages` ({"role", "content"}), by the chat template.

        `template_variables` are what this checkpoint's template takes besides
        (`{"enable_thinking": False}`). Options and errors are those of `generate`.
        """
        ids = self._chat_ids(messages, tools, template_variables)
        return self.generate(ids, stream=stream, **options)[0]

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Iterator[str]:
        """The answer of `chat`, piece by piece."""
        return self.stream(self._chat_ids(messages, tools, template_variables), **options)

    def _chat_ids(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any] | None,
    ) -> list[int]:
        text = self.chat_template.render(messages, tools=tools, **(variables or {}))
        # The template wrote the special tokens out.
        return self.tokenizer.encode(text, special=False)

    def _prepare(
        self,
        prompts: Prompts | None,
        inputs: Mapping[str, ArrayLike],
        options: GenerationOptions,
    ) -> Generation:
        if not self.generates:
            raise ArtifactError(
                f"{self.artifact.folder} wasn't exported for generation: set `for_generation=True` "
                "in its target, or use `embed` or `forward`."
            )
        needed = prompts is not None and has_text(prompts)
        tokenizer = self.tokenizer if needed or self._has_tokenizer else None
        return prepare(self.artifact, self._decoder, tokenizer, prompts, inputs, options)

    def _pieces(self, generation: Generation) -> Iterator[Piece]:
        """Run a generation. Raises RuntimeModelError in one that another has taken over from."""
        self._running = generation
        for piece in generation:
            yield piece
            if self._running is not generation:
                raise RuntimeModelError(
                    "Another generation of this model has begun, and the cache is its: "
                    "finish one first, or load the artifact twice."
                )

    def _graph(self, component: str | None) -> Graph:
        record = self.artifact.component(component)
        if record.name not in self._graphs:
            artifact = self.artifact
            self._graphs[record.name] = open_graph(
                artifact.folder, artifact.manifest.export_format, record, self._device
            )
        return self._graphs[record.name]

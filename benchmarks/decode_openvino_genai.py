"""OpenVINO GenAI on the artifact's IR: a contender of `benchmarks:decode`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import openvino
import openvino_genai
from benchmarks.decode_child import Clock, Generate, Task, contend
from openvino_tokenizers import convert_tokenizer
from transformers import PreTrainedTokenizerFast


class _Ticking(openvino_genai.StreamerBase):
    """Makes text of the tokens as they come, as every contender does."""

    def __init__(
        self, clock: Clock, tokens: list[int], tokenizer: openvino_genai.Tokenizer
    ) -> None:
        super().__init__()
        self._clock = clock
        self._tokens = tokens
        self._text = openvino_genai.TextStreamer(
            tokenizer, lambda text: openvino_genai.StreamingStatus.RUNNING
        )

    def write(self, token: int | list[int]) -> openvino_genai.StreamingStatus:
        self._clock.tick()
        self._tokens += [token] if isinstance(token, int) else token
        return self._text.write(token)

    def end(self) -> None:
        self._text.end()


def load_pipeline(task: Task) -> Generate:
    """Lay the artifact out as LLMPipeline wants it, and load that."""
    with tempfile.TemporaryDirectory() as name:
        _lay_out(task.folder, Path(name))
        pipeline = openvino_genai.LLMPipeline(name, "CPU", INFERENCE_PRECISION_HINT="f32")

    def generate(clock: Clock) -> list[int]:
        tokens: list[int] = []
        pipeline.generate(
            task.prompt,
            max_new_tokens=task.new_tokens,
            do_sample=False,
            apply_chat_template=False,
            streamer=_Ticking(clock, tokens, pipeline.get_tokenizer()),
        )
        return tokens

    return generate


def _lay_out(artifact: Path, folder: Path) -> None:
    (graph,) = artifact.glob("openvino_*.xml")
    for file in artifact.iterdir():
        if file.stem == graph.stem:
            place = folder / f"openvino_model{file.suffix}"
        else:
            place = folder / file.name
        place.symlink_to(file.resolve())
    # AutoTokenizer would take the class of a slow tokenizer, whose files the artifact doesn't have.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(artifact)
    models = convert_tokenizer(tokenizer, with_detokenizer=True)
    for model, what in zip(models, ("tokenizer", "detokenizer"), strict=True):
        openvino.save_model(model, folder / f"openvino_{what}.xml")


if __name__ == "__main__":
    contend(load_pipeline)

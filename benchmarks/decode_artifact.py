"""An artifact in `model_export.runtime`: contenders of `benchmarks:decode`, one each format."""

from __future__ import annotations

from benchmarks.decode_child import Clock, Generate, Task, contend

from model_export.runtime import load


def load_artifact(task: Task) -> Generate:
    """Load the artifact's graphs."""
    model = load(task.folder)
    model.warm_up()

    def generate(clock: Clock) -> list[int]:
        (completion,) = model.generate(
            task.prompt, max_new_tokens=task.new_tokens, stream=lambda row, text: clock.tick()
        )
        return list(completion.tokens)

    return generate


if __name__ == "__main__":
    contend(load_artifact)

"""The `onnx` format: graphs as `<component>.onnx`, the weights of all of them in one file."""

from __future__ import annotations

from model_export.exporter.backends.onnx.backend import OnnxBackend

BACKEND = OnnxBackend()

"""The `openvino` format: IR as `openvino_<component>.xml`, one weights file an artifact."""

from __future__ import annotations

from model_export.exporter.backends.openvino.backend import OpenVINOBackend

BACKEND = OpenVINOBackend()

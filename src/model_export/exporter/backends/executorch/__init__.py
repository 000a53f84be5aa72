"""ExecuTorch: every component a `.pte` for phones and other edge devices."""

from model_export.exporter.backends.executorch.backend import ExecutorchBackend

BACKEND = ExecutorchBackend()

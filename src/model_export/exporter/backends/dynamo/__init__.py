"""torch.export: every component a `.pt2` that needs PyTorch, and no checkpoint, to run."""

from model_export.exporter.backends.dynamo.backend import DynamoBackend

BACKEND = DynamoBackend()

"""Exports of Hugging Face models as build targets: pinned inputs, reproducible artifacts."""

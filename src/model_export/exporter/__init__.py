"""Runs in the export process: a checkpoint and a spec in, an artifact out."""

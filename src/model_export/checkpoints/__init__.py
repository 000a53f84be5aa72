"""Turns what a checkpoint target names into a checkpoint folder."""

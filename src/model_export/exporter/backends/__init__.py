"""One package a format; each is the only place that touches that format's engine."""

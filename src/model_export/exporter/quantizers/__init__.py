"""From a spec's `quantizer` to the engine's quantizers: what several backends share."""

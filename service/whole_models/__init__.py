"""A run over a whole model: plan, one job a region, what pays put back, and the proof."""

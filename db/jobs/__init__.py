"""Jobs, their queue, batches, the workers that run them, and what they have cost."""

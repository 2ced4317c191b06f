"""Jobs, their queue, the workers that run them, batches and what was spent."""

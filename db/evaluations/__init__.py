"""Tasks, and what their jobs produced: rounds, candidates, evaluations, LLM calls, events, retractions."""

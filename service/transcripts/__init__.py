"""The calls of models in a job: linked to candidates, rendered, and exported as training data."""

"""What models said in a job: linked to candidates, rendered, exported as training data."""

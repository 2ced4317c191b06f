"""Tasks and what was found out about candidates: rounds, evaluations, events, retractions."""

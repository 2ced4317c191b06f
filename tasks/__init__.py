"""What to optimize: tasks and suites, loaded and validated without ever executing them."""

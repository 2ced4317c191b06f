"""Tasks and suites, the ops to optimize. They are loaded and validated without ever executing them."""

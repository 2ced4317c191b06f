"""C++ of a runner, and what compiles it where sandboxes are made."""

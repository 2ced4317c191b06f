"""Platform `arm64` in a runner: its instruction set, and what eager takes on it."""

"""The profiler inside a runner: samples stacks and times operators. What it answers is advice."""

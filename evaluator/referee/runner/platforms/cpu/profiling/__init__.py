"""The profiler inside a runner: calls of the model, stack samples, times of operators. All answers are claims."""

"""The profiler's questions to a runner on a GPU. All answers are claims."""

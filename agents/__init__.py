"""Who writes kernels: LLM access, the Coder, the Judge and the graph that joins them."""

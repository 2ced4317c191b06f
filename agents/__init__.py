"""The agents that write kernels: LLM access, the Coder, the Judge and the graph that joins them."""

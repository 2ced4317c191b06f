"""The correctness check: does a candidate compute what the reference computes?

It covers input families, the float64 oracle, tolerances, the layout of outputs and the model's state.
"""

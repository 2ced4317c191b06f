"""The evaluation of candidates: the referee, the platforms, and the evaluation that they give."""

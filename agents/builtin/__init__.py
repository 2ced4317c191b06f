"""The built-in model `builtin/compiler`: a compiler search that answers as Coder and Judge. It is not an LLM."""

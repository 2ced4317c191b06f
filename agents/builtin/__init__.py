"""The built-in model `builtin/compiler`: a compiler search, not an LLM, that answers as Coder and as Judge."""

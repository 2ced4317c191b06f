"""How a job is driven: one LangGraph graph a file."""

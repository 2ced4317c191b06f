"""A person, or any agent that reads and writes files, as the model."""

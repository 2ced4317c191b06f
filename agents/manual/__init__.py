"""The model `manual/DIR`: a person or a program answers prompts through files."""

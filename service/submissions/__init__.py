"""What the HTTP API lets users ask for: who may, how much, and once only."""

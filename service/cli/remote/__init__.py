"""Commands that a server carries out, with progress and results in the terminal."""

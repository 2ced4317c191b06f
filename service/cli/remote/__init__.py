"""Commands that a server carries out: progress and results in the terminal."""

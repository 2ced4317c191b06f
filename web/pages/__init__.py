"""The pages: one file for each noun."""

"""The pages that people look at: one file for each noun."""

"""A program that tries, from inside a sandbox, what the sandbox promises to prevent, and says how far it got."""

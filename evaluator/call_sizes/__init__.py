"""The program that measures what calls of many ops touch. It runs in a sandbox, imports torch, and knows nothing else.

Each task is measured in a process of its own, which is forked once torch has been imported.
"""

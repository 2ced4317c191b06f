"""Runs inside a sandbox: has TorchInductor generate C++ for an op. Imports nothing of ours outside this folder."""

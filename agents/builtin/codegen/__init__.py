"""Generates C++ for an op by TorchInductor. This package runs inside a sandbox and imports nothing of ours outside."""

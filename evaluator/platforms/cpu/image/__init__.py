"""The image of platform `cpu`: Debian 12, python3 with headers, g++, ninja, torch, numpy, einops."""

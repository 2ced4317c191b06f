"""The part of the emulation that is compiled once, and what compiles it."""

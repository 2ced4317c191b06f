"""The runners of one evaluation: how they start, what they load and build, and which inputs and seeds they get."""

"""The runners of one evaluation: which there are, what they load and build, and the inputs and seeds that they get."""

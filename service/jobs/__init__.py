"""One job from its options to its exported file."""

"""Who asks, and what bounds requests."""

"""The images of Docker sandboxes: how they are built, from a registry or from nothing."""

"""Platform `simulated`: programs of the array machine."""

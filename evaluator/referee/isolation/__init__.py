"""The referee's control of other processes: it starts, stops, reads and kills them, and cleans up after them."""

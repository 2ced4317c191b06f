"""The referee's hold on other processes: start, stop, read, account for and clean up after them."""

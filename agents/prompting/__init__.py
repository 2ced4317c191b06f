"""What is said to models and what is read out of their replies."""

"""What a candidate is worth: the referee, its platforms, and the evaluation it returns."""

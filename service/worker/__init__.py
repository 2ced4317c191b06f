"""A worker: takes jobs and evaluations from the queue for one device of its host."""

"""How candidates are searched for: one small graph a file, all behind `agents.strategies.context.Strategy`."""

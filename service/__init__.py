"""The use cases, wired once: settings, jobs, evaluations and the command line."""

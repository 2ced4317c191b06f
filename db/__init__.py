"""The store: tables, migrations, and queries on tasks, jobs, evaluations and the leaderboard."""

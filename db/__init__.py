"""What is remembered: tables, migrations, the store and the leaderboard's queries."""

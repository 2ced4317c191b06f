"""The leaderboard: its rules, and the table `standings` that holds its entries."""

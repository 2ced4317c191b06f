"""The MCP server: evaluation, profiles, tasks and the leaderboard as tools for an agent."""

"""Where a candidate's time goes: runs apart from every verdict."""

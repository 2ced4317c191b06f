"""The fork server: the process that runners are forked from. It has imported torch and knows no secret."""

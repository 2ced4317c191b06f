"""The process that runners are forked from: it has imported torch and knows no secret; its children are runners."""

"""What the leaderboard says of a candidate, beside the figures of one of its evaluations."""

from db.leaderboard.pooling import CandidateFigure
from tasks.outcomes import clock_of

WRONG = "It is not on the leaderboard: an evaluation of it on this device found it wrong."


def leaderboard_text(figure: CandidateFigure, evaluation_id: str) -> str:
    """One sentence on a candidate's figure on the leaderboard; empty if this evaluation alone is that figure."""
    if figure.disqualified:
        return WRONG
    pooled = figure.pooled
    if pooled is None or (pooled.evaluations, pooled.latest_id) == (1, evaluation_id):
        return ""
    found = pooled.measurements
    interval = ""
    if found.speedup_low is not None and found.speedup_high is not None:
        interval = f" (95 % interval {found.speedup_low:.3f} to {found.speedup_high:.3f})"
    count = "one evaluation" if pooled.evaluations == 1 else f"{pooled.evaluations} evaluations, pooled"
    text = f"On the leaderboard: {found.speedup:.3f} over eager{interval}, by {count}."
    return clock_of(pooled.tags).beside(text[:-1]) + "."

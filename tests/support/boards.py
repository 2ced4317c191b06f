"""A leaderboard that tests fill in few words."""

from db.evaluations.results import add_candidate, add_evaluation
from db.evaluations.tasks import add_task
from db.jobs.jobs import add_job
from db.leaderboard.query import count_entries, leaderboard
from db.leaderboard.standings import standings_problems
from db.records import LeaderboardFilters, LeaderboardSort, Measurements, Owner
from db.tables import JobRow

DEFAULTS = {"sandbox": "docker", "platform": "cpu", "device": "CPU A", "verdict": "passed"}


def measurements(figures):
    """With the speedup over the fastest baseline, unless it is given: eager, or torch.compile if that is faster."""
    if figures["speedup"] is not None and "speedup_best" not in figures:
        over_compile = figures["speedup_compile"]
        name = "compile" if over_compile is not None and over_compile < figures["speedup"] else "eager"
        own = "speedup_compile" if name == "compile" else "speedup"
        best = {f"speedup_best{end}": figures.get(f"{own}{end}") for end in ("", "_low", "_high")}
        figures = figures | best | {"best_baseline": name}
    return Measurements(**figures)


class Board:
    """Stores evaluations in few words."""

    def __init__(self, store):
        self.store = store
        self.count = 0

    def add(self, *args, **values):
        """Store an evaluation `e1`, `e2`, … of a new candidate unless one is named, in a job of its own unless one is
        named; its job.
        """
        with self.store.write() as session:
            return self.add_in(session, *args, **values)

    def add_in(
        self,
        session,
        model,
        speedup=None,
        spread=0.01,
        *,
        task="starter/op",
        source="s1",
        dtype="float32",
        tags=(),
        job_id=None,
        evaluation_id=None,
        candidate=None,
        figures=None,
        result=None,
        text=None,
        user="local",
        **values,
    ):
        self.count += 1
        suite, name = task.split("/")
        given = {**DEFAULTS, **values}
        low, high = (None, None) if speedup is None or spread is None else (speedup - spread, speedup + spread)
        task_id = add_task(
            session, suite=suite, name=name, source_hash=source, source=source, category="other", dtype=dtype
        )
        if job_id is None:
            job_id = add_job(
                session,
                task_id=task_id,
                kind="optimize",
                platform=given["platform"],
                sandbox=given["sandbox"],
                owner=Owner("h", 1, "s"),
                model=model,
            )
            session.get_one(JobRow, job_id).user = user
        digest = f"{self.count:064}" if candidate is None else f"{candidate:x>64}"
        candidate_id = add_candidate(
            session, job_id, round_number=1, candidate_hash=digest, source=text or str(self.count)
        )
        add_evaluation(
            session,
            evaluation_id or f"e{self.count}",
            candidate_id=candidate_id,
            round_number=1,
            code=None,
            message="",
            tags=["custom_kernel", *tags],
            measurements=measurements(
                {"speedup": speedup, "speedup_low": low, "speedup_high": high, "speedup_compile": 1.1} | (figures or {})
            ),
            result=result or {},
            **given,
        )
        return job_id

    def entries(self, *, sort=LeaderboardSort.BOARD, descending=None, limit=None, offset=0, **filters):
        with self.store.read() as session:
            return leaderboard(
                session, LeaderboardFilters(**filters), sort=sort, descending=descending, limit=limit, offset=offset
            )

    def counted(self, **filters):
        with self.store.read() as session:
            return count_entries(session, LeaderboardFilters(**filters))

    def ranks(self, **filters):
        return [(entry.model, entry.rank) for entry in self.entries(**filters)]

    def problems(self):
        """How the leaderboard differs from what the evaluations say."""
        with self.store.read() as session:
            return standings_problems(session)

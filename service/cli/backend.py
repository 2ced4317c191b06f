"""The backend of a command: this machine's store, or a server."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from db.jobs import model_runs
from db.records import (
    AuditRecord,
    EvaluationRecord,
    JobRecord,
    LeaderboardEntry,
    LeaderboardFilters,
    LeaderboardSort,
    ModelRunHead,
)
from db.store import Store
from db.tables import LOCAL_USER
from service.audit import list_audit, restore_evaluation, retract_evaluation
from service.batches import manage
from service.batches.manage import BatchDetails, BatchLine
from service.batches.results import Baseline
from service.client.server import ServerClient, open_server
from service.database import opened_store
from service.jobs import query
from service.jobs.query import JobDetails
from service.settings import Settings, load_settings
from service.transcripts.calls import Entry, read_transcript
from service.transcripts.redaction import known_secrets, without_secrets
from service.views.leaderboard import leaderboard_page
from service.whole_models.local import read_report
from service.whole_models.report import report_json


class LocalBackend:
    """A backend on this machine's store. It has the methods that `ServerClient` has for a server."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """Jobs, newest first; `everything` includes single evaluations."""
        return query.list_jobs(self._store, kind=None if everything else "optimize", limit=limit)

    def show_job(self, job_id: int) -> JobDetails:
        """A job with its rounds and its best candidate."""
        return query.show_job(self._store, job_id)

    def transcript(self, job_id: int) -> list[Entry]:
        """A job's calls and the events between them, without secrets."""
        return without_secrets(read_transcript(self._store, job_id), known_secrets(self._settings))

    def cancel_job(self, job_id: int) -> JobRecord:
        """Cancel a job."""
        return query.cancel_job(self._store, job_id)

    def list_models(self, *, limit: int) -> list[ModelRunHead]:
        """Runs over whole models, newest first."""
        query.mark_dead_jobs(self._store)
        with self._store.read() as session:
            return model_runs.list_runs(session, limit=limit)

    def show_model(self, run_id: int) -> Mapping[str, Any]:
        """A run over a whole model, as `models show --json` prints it."""
        return report_json(read_report(run_id, settings=self._settings, store=self._store), self._store)

    def show_batch(self, batch_id: int, *, over: Baseline = "eager") -> BatchDetails:
        """A batch with its present figures over a baseline."""
        return manage.show_batch(self._store, batch_id, over=over)

    def list_batches(self, *, limit: int) -> list[BatchLine]:
        """Batches, newest first."""
        return manage.list_batches(self._store, limit=limit)

    def cancel_batch(self, batch_id: int) -> int:
        """Cancel a batch.

        Returns:
            The number of jobs that this concerns.
        """
        return manage.cancel_batch(self._store, batch_id)

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Retract an evaluation."""
        return retract_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Let a retracted evaluation count again."""
        return restore_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def leaderboard(
        self, filters: LeaderboardFilters, *, sort: LeaderboardSort, descending: bool | None, limit: int | None
    ) -> tuple[list[LeaderboardEntry], int]:
        """Entries of the leaderboard, and the number of all entries that match the filters."""
        return leaderboard_page(self._store, filters, sort=sort, descending=descending, limit=limit)

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """The audit log, newest first."""
        return list_audit(self._store, limit=limit)


Backend = LocalBackend | ServerClient


@contextlib.contextmanager
def open_backend(server: str | None) -> Iterator[Backend]:
    """Open the server that `--server` or the settings name, or else this machine's store.

    Raises:
        BadRequest: the server's address is not valid.
        StoreError: the store cannot be used.
    """
    settings = load_settings(server=server)
    if settings.server is not None:
        with open_server(settings) as client:
            yield client
        return
    with opened_store(settings) as store:
        yield LocalBackend(store, settings)

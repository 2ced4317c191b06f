"""A job in the queue, for tests that need one."""

from db.store import Store
from db.tables import LOCAL_USER
from service.settings import Settings
from service.submissions.enqueue import check_submission, queue_job
from tasks.task import Task


def submit(task: Task, *, settings: Settings, store: Store, user: str = LOCAL_USER, priority: str = "normal") -> int:
    """Queue a job that optimizes `task` as the settings say; its id.

    Raises:
        BadRequest: the request is invalid; nothing was queued.
    """
    check_submission(task, settings, priority)
    with store.write() as session:
        return queue_job(session, task, settings=settings, user=user, priority=priority)

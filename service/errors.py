"""The errors of use cases. The command line turns them into the exit statuses 2 (refused) and 3 (not possible here)."""


class ServiceError(RuntimeError):
    """Base of the errors below. The text is one clear line that says what to do."""


class JobLost(RuntimeError):
    """This process does not own the job any more: another worker has it. This process may write nothing more to it."""


class BadRequest(ServiceError):
    """The request is not valid: an unknown name, an invalid value, or a file that exists already."""


class KeyUnreadable(BadRequest):
    """The file of a model's key cannot be used. The text names its path, so only users of this machine may see it."""


class Conflict(BadRequest):
    """The request is valid, but not in the present state: the job is done, queued or running."""


class Unavailable(ServiceError):
    """There is no sandbox, device or model to work with. The text says what to set or start."""

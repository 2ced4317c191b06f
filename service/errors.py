"""What a use case refuses to do, and what it cannot do here; the command line turns them into exit statuses 2 and 3."""


class ServiceError(RuntimeError):
    """Base of the errors below. The text is one clear line that says what to do."""


class JobLost(RuntimeError):
    """A job is not ours any more: it was given to another worker, or taken away. Nothing more may be written to it."""


class BadRequest(ServiceError):
    """What was asked for makes no sense: an unknown name, a bad value, a file in the way."""


class KeyUnreadable(BadRequest):
    """The file that is to hold a model's key does not. The text names its path, so it is for this machine's users."""


class Conflict(BadRequest):
    """What was asked for makes sense, but not as things stand: the job is done, or someone works on it."""


class Unavailable(ServiceError):
    """No sandbox, device or model to work with; the text says what to set or start."""

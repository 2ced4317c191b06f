"""The store's errors. This module does not import SQLAlchemy."""


class StoreError(RuntimeError):
    """The store cannot be used. The message is one line: which store, what is wrong, what to do."""


class NotInStore(LookupError):
    """There is nothing with the given id. The message names the kind and the id."""

"""What can go wrong with the store; importable without SQLAlchemy."""


class StoreError(RuntimeError):
    """The store cannot be used. Its text is one clear line: which store, what is wrong, what to do."""


class NotInStore(LookupError):
    """Something asked for by its id is not there. Its text names kind and id."""

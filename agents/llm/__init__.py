"""One call of a model: the client, its budget and ledger, streaming, prices and errors."""

"""Requests over HTTP: authorization, quotas, idempotency keys, and putting jobs into the queue."""

"""Access tokens, the audit log and idempotency keys."""

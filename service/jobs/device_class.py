"""Which devices are alike, and where a job may be measured."""

import hashlib
from dataclasses import dataclass

from db.records import JobRecord

SANDBOX = "sandbox"
"""The option that names the sandbox which a job asks for; without it any will do."""


def device_class_of(platform: str, described: str) -> str:
    """The first letters of the hash of all that is known of a device (`Device.describe`): like devices give comparable
    figures."""
    return hashlib.sha256(f"{platform}\n{described}".encode()).hexdigest()[:8]


def started_device_class(job: JobRecord) -> str | None:
    """The kind of device that a job began on; None for one that has not begun."""
    kind, described = job.options.get("device_kind"), job.options.get("device")
    if kind is not None:
        return str(kind)
    return None if described is None else device_class_of(job.platform, str(described))


def required_sandbox(job: JobRecord) -> str | None:
    """The sandbox that a job began in, or else the one that it asks for; None where any will do."""
    begun = job.sandbox if started_device_class(job) is not None else None
    asked = job.options.get(SANDBOX)
    return begun or (None if asked is None else str(asked))


@dataclass(frozen=True)
class MeasurementTarget:
    """A device and a sandbox to measure in. `device` is all that is known of it; `sandbox` None fits every job."""

    platform: str
    device: str
    sandbox: str | None = None

    @property
    def kind(self) -> str:
        """The device's kind."""
        return device_class_of(self.platform, self.device)

    def options_for(self, job: JobRecord) -> dict[str, str] | None:
        """What a job keeps that is measured here from now on; None where it must not be.

        It stays with the kind of device and the sandbox that it began in, for its speedups are of those. What its
        prompts say of the device stays the same, too.
        """
        kind, sandbox = started_device_class(job), required_sandbox(job)
        if kind not in (None, self.kind) or (self.sandbox is not None and sandbox not in (None, self.sandbox)):
            return None
        return {"device": str(job.options.get("device") or self.device), "device_kind": self.kind}

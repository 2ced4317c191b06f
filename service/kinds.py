"""Which devices are alike."""

import hashlib

from evaluator.platforms import Device


def kind_of(device: Device) -> str:
    """The first letters of the hash of all that is known of a device: like devices give comparable figures."""
    return hashlib.sha256(f"{device.platform}\n{device.describe()}".encode()).hexdigest()[:8]

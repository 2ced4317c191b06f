"""How busy this machine is, as its kernel says. The host reads it, too; so this imports the standard library alone."""

import os
from pathlib import Path

TICKS_A_S = os.sysconf("SC_CLK_TCK")
_STAT = Path("/proc/stat")


def busy_s() -> float | None:
    """Time that all cores have spent on anything since boot, stolen time included; None where the kernel hides it."""
    try:
        fields = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = fields
    busy = user + nice + system + irq + softirq + steal
    return busy / TICKS_A_S if busy else None

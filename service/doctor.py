"""What this machine has of what Kernelwright needs, and what to do about the rest."""

from db.errors import StoreError
from evaluator.platforms import PLATFORM_NAMES, load_platform
from sandbox.doctor import Finding, examine
from service.settings import Settings
from service.store import open_store


def examine_machine(settings: Settings) -> list[Finding]:
    """Everything that was looked at: sandboxes and tools, the store, the devices. Starts no container."""
    return [*examine(settings.data_dir), _store(settings), *(_device(name) for name in PLATFORM_NAMES)]


def can_work(findings: list[Finding]) -> bool:
    """Whether nothing that is needed is missing."""
    return all(finding.status != "missing" for finding in findings)


def _store(settings: Settings) -> Finding:
    try:
        store = open_store(settings)
    except StoreError as error:
        return Finding("store", "missing", str(error), "set KERNELWRIGHT_DATA_DIR or KERNELWRIGHT_DATABASE_URL")
    store.close()
    return Finding("store", "ok", store.engine.url.render_as_string(hide_password=True))


def _device(platform: str) -> Finding:
    try:
        return Finding(f"platform {platform}", "ok", load_platform(platform).device().name)
    except OSError as error:
        return Finding(f"platform {platform}", "missing", str(error), "see `kernelwright platforms`")

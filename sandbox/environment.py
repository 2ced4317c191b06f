"""The environment variables of every command, whatever the sandbox."""

COMMAND_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "USER": "runner",  # else libraries look up the name of a uid that has none, and fail
    "PYTHONDONTWRITEBYTECODE": "1",
    # No folder that the code inside may write to is ever on the search path of a Python that is started inside.
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
    # The allocator recycles what is freed, so that timed calls meet no fresh pages.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
}

"""Imports LiteLLM the way this project needs it: late, quiet, without the network."""

import logging
import os
import warnings
from types import ModuleType
from typing import Any


def import_litellm() -> ModuleType:
    """The `litellm` module, imported on the first call (some seconds) and configured.

    Prices come from the list in the package and not from the network; no `.env` is read behind the user's back;
    nothing is reported anywhere; nothing is printed. Import LiteLLM through here only: the environment that it reads
    at import must be set before.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

    # LiteLLM's own types make pydantic warn whenever one is used for the first time, and streams all the time.
    warnings.filterwarnings("ignore", message=".* is using the `ReadOnly` qualifier", category=UserWarning)
    warnings.filterwarnings("ignore", message=".* are using the `ReadOnly` qualifier", category=UserWarning)
    warnings.filterwarnings("ignore", message="Accessing the 'model_", category=DeprecationWarning)
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.drop_params = True  # what a model does not know is left out instead of refused
    litellm.disable_streaming_logging = True  # it starts an event loop in a thread for every chunk
    litellm.disable_hf_tokenizer_download = True  # an estimate of tokens is not worth a download
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def register_provider(litellm: Any, provider: str, handler: object) -> None:
    """Have LiteLLM answer `provider/…` by `handler` (a `litellm.CustomLLM`), in place of an earlier one."""
    others = [entry for entry in litellm.custom_provider_map if entry["provider"] != provider]
    litellm.custom_provider_map = [*others, {"provider": provider, "custom_handler": handler}]
    litellm.utils.custom_llm_setup()

"""A mock LLM server: Chat Completions over HTTP from a script, with faults on demand.

It serves to try the program without a key (`kernelwright dev llm-server`), and for tests.
"""

from service.mock_llm.script import Entry, Script, ScriptedCall, ScriptedUsage, When, load_script, request_digest
from service.mock_llm.server import LlmServer, start_llm_server

__all__ = [
    "Entry",
    "LlmServer",
    "Script",
    "ScriptedCall",
    "ScriptedUsage",
    "When",
    "load_script",
    "request_digest",
    "start_llm_server",
]

"""The last resort: a candidate that has torch.compile do everything, and says so."""

import json
from collections.abc import Mapping
from typing import Any

from agents.builtin.candidate_file import HEADER
from agents.builtin.op_frame import KEPT_FORWARD, Frame


def assemble_fallback(frame: Frame, note: Mapping[str, Any], reason: str) -> str:
    """A candidate around torch.compile; `reason` tells why there are no kernels of its own."""
    taken = ", ".join([*frame.names, *([f"*{frame.rest}"] if frame.rest else [])])
    plain = "".join(character for character in reason if character.isprintable())[:300].replace("\\", "/")
    method = f"""
    def forward({frame.parameters}):
        if not hasattr(self, "compiled"):
            object.__setattr__(self, "compiled", torch.compile(self.{KEPT_FORWARD}, dynamic=False))
        return self.compiled({taken})
"""
    return "\n".join(
        [
            HEADER + json.dumps(note, sort_keys=True),
            '"""Written by kernelwright\'s builtin/compiler, a compiler search and no LLM.\n\n'
            "It has no kernel of its own: torch.compile does everything, because the generated code could not be\n"
            "made self-contained\n"
            f"({plain.replace(chr(34), chr(39))}).\n"
            '"""',
            frame.before,
            "import torch\n",
            frame.head + "\n" + method,
            frame.after,
        ]
    )

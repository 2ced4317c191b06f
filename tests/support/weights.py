"""Files with weights, as `safetensors.torch.save_file` writes them."""

import json
from typing import Any


def state_file(weights: dict[str, tuple[str, list[int], bytes]], **header: Any) -> bytes:
    entries: dict[str, Any] = {}
    elements = b""
    for name, (dtype, shape, raw) in weights.items():
        offsets = [len(elements), len(elements) + len(raw)]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        elements += raw
    text = json.dumps({**entries, **header}).encode()
    return len(text).to_bytes(8, "little") + text + elements

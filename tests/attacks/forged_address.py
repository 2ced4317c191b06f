# tries: an answer that points at memory that is not there
# verdict: integrity/unreadable_output
import json
import struct
import sys
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        frame = sys._getframe()
        while "self" not in frame.f_locals or not hasattr(frame.f_locals["self"], "sock"):
            frame = frame.f_back
        runner = frame.f_locals["self"]
        row = {
            "place": 4096,
            "dtype": "float32",
            "shape": list(x.shape),
            "stride": [x.shape[1], 1],
            "device": "cpu",
            "layout": "strided",
        }
        body = json.dumps({"ok": True, "tree": {"spec": {"tensor": 0}, "tensors": [row]}}).encode()
        runner.sock.sendall(struct.pack("!I", len(body)) + body)
        time.sleep(60)

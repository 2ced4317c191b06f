"""Candidates that must not pass on a GPU, or must gain nothing there: attacks on its clock, its memory and its types.

Each is tried in earnest: an evaluator that records two events around a call and waits for the device would let it pass,
or find it faster than it is. What they take of the runner (`gc` finds its objects) is what any candidate can take. Work
that outlives a call is bounded in time.
"""

from dataclasses import dataclass

from tests.platforms.gpu.ops import DEEP_PRODUCT, LARGE, ROW_SUM
from tests.platforms.kits import OP

_WITH_WEIGHT = """
import ctypes
import gc
import threading
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

{before}

def found(name):
    return next((each for each in gc.get_objects() if type(each).__name__ == name), None)


CALLS, RUNNER = found("DeviceCalls"), found("Runner")


class Bytes:
    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {{"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 2}}


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kept, self.graph, self.side, self.seen = None, None, None, {{}}
        self.calls = 0

    def right(self, x):
        return F.relu(x * self.weight) + x

    def forward(self, x):
        self.calls += 1
{body}
"""

_WITHOUT_STATE = """
import torch
import torch.nn as nn

{before}

class ModelNew(nn.Module):
    def forward(self, {arguments}):
{body}
"""


def _indented(body: str) -> str:
    return "\n".join(f"        {line}" for line in body.strip("\n").splitlines())


def _with(body: str, before: str = "") -> str:
    return _WITH_WEIGHT.format(body=_indented(body), before=before)


def _without_state(arguments: str, body: str, before: str = "") -> str:
    return _WITHOUT_STATE.format(arguments=arguments, body=_indented(body), before=before)


@dataclass(frozen=True)
class Attack:
    """A candidate that must not pass.

    Attributes:
        source: the candidate.
        why: what refuses it.
        verdicts: those that it may get.
        op: the op that it is for.
        platform: the language.
        kernel: CUDA C++ that NVRTC must compile, if it has any.
        screened: the verdict where kernels are screened; empty: nothing can be screened of it.
    """

    source: str
    why: str
    verdicts: tuple[str, ...] = ("wrong_output", "integrity")
    op: str = OP
    platform: str = "cuda"
    kernel: str = ""
    screened: str = ""


LATE = "what is written after the referee's snapshot is not in it, and poison is"
FRESH = "inputs are others in every call, and every call is judged"
OWNED = "answers lie in memory of other processes, or in the referee's that is never exported"
EXACT = "outputs are compared with the float64 oracle, by the reference's own error, which another process computes"

ATTACKS = {
    "a side stream that nobody joins": Attack(
        _with("""
self.side = self.side or torch.cuda.Stream()
y = torch.empty_like(x)
with torch.cuda.stream(self.side):
    torch.cuda._sleep(20_000_000)
    y.copy_(self.right(x))
return y
"""),
        "the runner copies outputs on its own stream, before the side stream has written them",
    ),
    "a side stream that is joined by an event recorded before the work": Attack(
        _with("""
self.side, event = self.side or torch.cuda.Stream(), torch.cuda.Event()
y = torch.empty_like(x)
event.record(self.side)
with torch.cuda.stream(self.side):
    torch.cuda._sleep(20_000_000)
    y.copy_(self.right(x))
torch.cuda.current_stream().wait_event(event)
return y
"""),
        "the runner copies outputs on its own stream, before the side stream has written them",
    ),
    "waits for nothing: torch's synchronize does nothing": Attack(
        _with("""
torch.cuda.synchronize = lambda *_: None
y = torch.zeros_like(x)
torch.cuda._sleep(50_000_000)
y.copy_(self.right(x))
return y
"""),
        LATE,
    ),
    "events, streams and clocks of its process are forged": Attack(
        _with(
            """
self.side, y = self.side or torch.cuda.Stream(), torch.zeros_like(x)
with torch.cuda.stream(self.side):
    torch.cuda._sleep(50_000_000)
    y.copy_(self.right(x))
return y
""",
            """
torch.cuda.synchronize = lambda *_: None
torch.cuda.Stream.synchronize = lambda self: None
torch.cuda.Event.synchronize = lambda self: None
torch.cuda.Event.query = lambda self: True
torch.cuda.Event.elapsed_time = lambda self, other: 0.001
now = time.perf_counter
time.perf_counter = lambda: now() / 1000
time.time = lambda: 0.0
""",
        ),
        f"no clock of the runner's is read; {LATE}",
    ),
    "leaves work running behind its answer": Attack(
        _with("""
torch.cuda.synchronize = lambda *_: None
y = self.right(x)
self.side = self.side or torch.cuda.Stream()
with torch.cuda.stream(self.side):
    torch.cuda._sleep(1_000_000_000)
return y
"""),
        "the device must be idle before inputs are uncovered",
        ("integrity", "wrong_output"),
    ),
    "a thread of the host launches after the answer": Attack(
        _with("""
y, stream = torch.zeros_like(x), self.side or torch.cuda.Stream()
self.side = stream


def later():
    time.sleep(0.005)
    with torch.cuda.stream(stream):
        y.copy_(self.right(x))


threading.Thread(target=later, daemon=True).start()
return y
"""),
        "the process is stopped once it has answered, with all its threads",
    ),
    "a callback of the driver on the host holds the work back": Attack(
        _with("""
torch.cuda.synchronize = lambda *_: None
self.side, y = self.side or torch.cuda.Stream(), torch.zeros_like(x)
if self.kept is None:
    self.kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.02))
stream = ctypes.c_void_p(self.side.cuda_stream)
assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, self.kept, None) == 0
with torch.cuda.stream(self.side):
    y.copy_(self.right(x))
return y
"""),
        LATE,
    ),
    "writes into the referee's memory after the answer": Attack(
        _with("""
type(CALLS)._put = lambda *_: None
torch.cuda.synchronize = lambda *_: None
self.side, y = self.side or torch.cuda.Stream(), self.right(x)
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    torch.cuda._sleep(50_000_000)
    if CALLS._room.numel() >= y.nbytes:
        CALLS._room[: y.nbytes].copy_(y.view(-1).view(torch.uint8))
y.record_stream(self.side)
return y
"""),
        LATE,
    ),
    "a graph that is replayed on old inputs": Attack(
        _with("""
if self.calls < 4:
    return self.right(x)
if self.graph is None:
    self.kept = x.clone()
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph):
        self.first = self.right(self.kept)
self.graph.replay()
return self.first.clone()
"""),
        FRESH,
    ),
    "a graph over the inputs of several calls, replayed once for all of them": Attack(
        _with("""
if x.data_ptr() not in self.seen and len(self.seen) < 4 and self.graph is None:
    self.seen[x.data_ptr()] = x
    return self.right(x)
if self.graph is None:
    self.graph, self.kept = torch.cuda.CUDAGraph(), {}
    torch.cuda.synchronize()
    with torch.cuda.graph(self.graph):
        for address, each in self.seen.items():
            self.kept[address] = self.right(each)
if x.data_ptr() not in self.kept or x.shape != self.kept[x.data_ptr()].shape:
    return self.right(x)
if x.data_ptr() == next(iter(self.kept)):
    self.graph.replay()
return self.kept[x.data_ptr()].clone()
"""),
        FRESH,
    ),
    "the answer to the last inputs at this address": Attack(
        _with("""
key = x.data_ptr()
if key not in self.seen:
    self.seen[key] = self.right(x)
return self.seen[key].clone()
"""),
        FRESH,
    ),
    "the answer of the call before, out of pinned memory of the host": Attack(
        _with("""
if self.kept is None or self.kept.shape != x.shape:
    self.kept = self.right(x).cpu().pin_memory()
y = self.kept.to(x.device, non_blocking=True)
self.kept.copy_(self.right(x), non_blocking=True)
return y
"""),
        FRESH,
    ),
    "honest while it is checked": Attack(
        _with("""
if self.calls < 40:
    return self.right(x)
y, half = torch.empty_like(x), x.shape[0] // 2
y[:half] = self.right(x[:half])
return y
"""),
        "each timed call is judged",
    ),
    "uninitialised memory": Attack(_with("return torch.empty_like(x)"), OWNED),
    "the device's memory is searched for the answer": Attack(
        _with("""
torch.cuda.empty_cache()
key, n = self.right(x[:1]).flatten(), x.numel()
for _ in range(4):
    memory = torch.empty(64 << 20, device=x.device)
    for at in (memory[: -n or None] == key[0]).nonzero()[:64].flatten().tolist():
        if torch.equal(memory[at : at + key.numel()], key):
            return memory[at : at + n].view(x.shape).clone()
return torch.empty_like(x)
"""),
        OWNED,
    ),
    "the referee's memory for outputs is read": Attack(
        _with("""
room = CALLS._room
if room.numel() >= x.nbytes:
    return room[: x.nbytes].clone().view(torch.float32).view(x.shape)
return torch.empty_like(x)
"""),
        "outputs are overwritten before each call",
    ),
    "memory of other processes by their file descriptors": Attack(
        _with("""
import os
key, size = self.right(x[:1]).flatten(), CALLS._room.numel()
if self.kept is None and size:
    self.kept, libc = [], ctypes.CDLL(None)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        for number in range(64):
            try:
                fd = libc.syscall(438, os.pidfd_open(pid), number, 0)  # pidfd_getfd
                if fd >= 0:
                    self.kept.append(CALLS._memory.at(CALLS._memory.open(fd, size), size).view(torch.float32))
            except (OSError, RuntimeError, ValueError):
                pass
for memory in self.kept or []:
    if memory.numel() >= x.numel() and torch.equal(memory[: key.numel()], key):
        return memory[: x.numel()].clone().view(x.shape)
return torch.empty_like(x)
"""),
        "descriptors of other users' processes cannot be taken, and answers in the referee's memory are never exported",
    ),
    "one output for all calls": Attack(
        _with("""
self.kept = torch.empty_like(x) if self.kept is None or self.kept.shape != x.shape else self.kept
return self.kept.copy_(self.right(x))
"""),
        "earlier outputs are read again after later calls",
    ),
    "an output in memory that was given back": Attack(
        _with("""
y = self.right(x)
return torch.as_tensor(Bytes(y.data_ptr(), y.nbytes), device="cuda").view(torch.float32).view(x.shape)
"""),
        "earlier outputs are read again after later calls, which get the same memory",
    ),
    "writes to its inputs": Attack(_with("return x.copy_(self.right(x)).clone()"), "inputs are compared afterwards"),
    "an output in the memory of its inputs": Attack(
        _with("return torch.add(F.relu(x * self.weight), x, out=x)"), "inputs are compared afterwards"
    ),
    "changes the inputs that it was given for others": Attack(
        _with("y = self.right(x); x.zero_(); return y"), "inputs are compared afterwards"
    ),
    "an output on the host": Attack(_with("return self.right(x).cpu()"), "the device of outputs is compared"),
    "half of the work, in bfloat16": Attack(
        _with("return (F.relu(x.bfloat16() * self.weight.bfloat16()) + x.bfloat16()).float()"), EXACT
    ),
    "a float32 product in TF32, switched on at import": Attack(
        _without_state("a, b", "return a @ b", 'torch.set_float32_matmul_precision("high")'), EXACT, op=DEEP_PRODUCT
    ),
    "a float32 product in bfloat16": Attack(
        _without_state("a, b", "return (a.bfloat16() @ b.bfloat16()).float()"), EXACT, op=DEEP_PRODUCT
    ),
    "a split product without the terms that correct it": Attack(
        _without_state(
            "a, b",
            """
high = a.bfloat16()
low = (a - high.float()).bfloat16()
right = b.bfloat16()
return torch.mm(high, right, out_dtype=torch.float32) + torch.mm(low, right, out_dtype=torch.float32)
""",
        ),
        EXACT,
        op=DEEP_PRODUCT,
    ),
}

_TOTAL = r"""
extern "C" __global__ void total(const float* x, float* y, int n) {
    __shared__ float sum;
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&sum, x[blockIdx.x * (long long)n + i]);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""

ATTACKS["a sum in shared memory that nobody sets to zero"] = Attack(
    _without_state(
        "x",
        """
y = x.new_empty(x.shape[0])
ModelNew.kernel = ModelNew.kernel or torch.cuda._compile_kernel(CUDA, "total")
ModelNew.kernel(grid=(x.shape[0], 1, 1), block=(128, 1, 1), args=[x.contiguous(), y, x.shape[1]])
return y
""",
        f'CUDA = r"""{_TOTAL}"""',
    ).replace("class ModelNew(nn.Module):\n", "class ModelNew(nn.Module):\n    kernel = None\n\n"),
    "shared memory holds what blocks before have left, so sums are wrong from the second block on",
    ("wrong_output",),
    op=ROW_SUM,
    kernel=_TOTAL,
    screened="wrong_output",
)

_SERVE = r"""
extern "C" __global__ void serve(volatile long long* mail, const float* w, int features) {
    __shared__ long long asked, served;
    const long long began = clock64();
    if (threadIdx.x == 0) served = mail[1];
    __syncthreads();
    while (true) {
        if (threadIdx.x == 0)
            do asked = mail[0];
            while (asked == served && clock64() - began < 1000000000LL);
        __syncthreads();
        if (asked == served) break;
        const volatile float* x = (const volatile float*)mail[2];
        volatile float* y = (volatile float*)mail[3];
        const long long n = mail[4];
        for (long long i = threadIdx.x; i < n; i += blockDim.x) {
            const float value = x[i], scaled = value * w[i % features];
            y[i] = (scaled < 0.0f ? 0.0f : scaled) + value;
        }
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) { served = asked; mail[1] = asked; }
        __syncthreads();
    }
}
"""

ATTACKS["a kernel that stays between calls and serves them from a mailbox"] = Attack(
    _with(
        """
torch.cuda.synchronize = lambda *_: None
x = x.contiguous()
if self.kept is None:
    self.graph = torch.cuda._compile_kernel(CUDA, "serve")
    self.side, self.post = torch.cuda.Stream(), torch.cuda.Stream()
    self.kept, self.until = torch.zeros(8, dtype=torch.int64, device="cuda"), 0.0
    self.letter = torch.zeros(5, dtype=torch.int64).pin_memory()
    self.answer = torch.zeros(1, dtype=torch.int64).pin_memory()
    torch.cuda.current_stream().synchronize()
if time.monotonic() > self.until:
    self.side.synchronize()
    self.graph(grid=(1, 1, 1), block=(1024, 1, 1), args=[self.kept, self.weight, x.shape[-1]], stream=self.side)
    self.until = time.monotonic() + 0.2
y = torch.empty_like(x)
self.letter.copy_(torch.tensor([self.calls, 0, x.data_ptr(), y.data_ptr(), x.numel()]))
with torch.cuda.stream(self.post):
    self.kept[2:5].copy_(self.letter[2:5], non_blocking=True)
    self.kept[:1].copy_(self.letter[:1], non_blocking=True)
    ended = time.monotonic() + 1.0
    while int(self.answer) != self.calls and time.monotonic() < ended:
        self.answer.copy_(self.kept[1:2], non_blocking=True)
        self.post.synchronize()
return y
""",
        f'CUDA = r"""{_SERVE}"""',
    ),
    "the device must be idle before inputs are uncovered",
    ("integrity", "wrong_output", "timed_out"),
    kernel=_SERVE,
)

_WATCH = r"""
extern "C" __global__ void watch(volatile float* x, const float* w, float* y, int n, int features) {
    const long long began = clock64();
    volatile int* last = (volatile int*)(x + n - 1);
    if (threadIdx.x == 0)
        while (*last == -1 && clock64() - began < 400000000LL) {}
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float value = x[i], scaled = value * w[i % features];
        y[i] = (scaled < 0.0f ? 0.0f : scaled) + value;
    }
}
"""

_BEFORE_GO = """
if self.kept is None and self.calls > 8:
    self.kept, self.side, wait_for_go = {}, torch.cuda.Stream(), RUNNER.wait_for_go
PREPARE

    def started(inputs, tensors, *more):
        if len(tensors) == 1 and tensors[0].is_contiguous() and tensors[0].dtype == torch.float32:
            start(tensors[0])
        return wait_for_go(inputs, tensors, *more)

    RUNNER.wait_for_go = started
if self.kept and x.data_ptr() in self.kept:
    torch.cuda.current_stream().wait_stream(self.side)
    return self.kept.pop(x.data_ptr())
return self.right(x)
"""


def _before_go(prepare: str) -> str:
    """A `forward` that has work start by itself once inputs lie there; `prepare` defines `start`."""
    return _BEFORE_GO.replace("PREPARE", "\n".join(f"    {line}" for line in prepare.strip("\n").splitlines()))


ATTACKS["a kernel that watches for its inputs and is done before it is asked"] = Attack(
    _with(
        _before_go("""
kernel = torch.cuda._compile_kernel(CUDA, "watch")


def start(x):
    y = torch.empty_like(x)
    x.view(-1)[-1:].view(torch.int32).fill_(-1)
    torch.cuda.current_stream().synchronize()
    arguments = [x, self.weight, y, x.numel(), x.shape[-1]]
    kernel(grid=(1, 1, 1), block=(1024, 1, 1), args=arguments, stream=self.side)
    self.kept[x.data_ptr()] = y
"""),
        f'CUDA = r"""{_WATCH}"""',
    ),
    "the device must be idle behind the runner's last turn, before inputs are uncovered",
    ("integrity", "wrong_output", "timed_out"),
    kernel=_WATCH,
)


@dataclass(frozen=True)
class Gain:
    """A right candidate, and the same with something that must not make it faster.

    Attributes:
        plain: the candidate without.
        tried: the candidate with it.
        why: what it may gain, and what keeps that small.
        at_most: the time of `plain` over that of `tried` which is not exceeded.
        op: the op that both are for.
    """

    plain: str
    tried: str
    why: str
    at_most: float = 1.05
    op: str = LARGE


PLAIN = _with("return self.right(x)")

_PERSIST = """
class Window(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t), ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("padding", ctypes.c_ubyte * 64),
    )


def persist(x, stream, nbytes=24 << 20):
    driver, window = ctypes.CDLL("libcuda.so.1"), Window(x.data_ptr(), min(nbytes, x.nbytes), 1.0, 2, 1)
    assert driver.cuCtxSetLimit(ctypes.c_int(6), ctypes.c_size_t(nbytes)) == 0
    of = ctypes.c_void_p(stream.cuda_stream)
    assert driver.cuStreamSetAttribute(of, ctypes.c_int(1), ctypes.byref(window)) == 0
"""
_ON_A_STREAM = """
self.side = self.side or torch.cuda.Stream()
FIRST
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    y = self.right(x)
torch.cuda.current_stream().wait_stream(self.side)
return y
"""

GAINS = {
    "lines of the L2 cache that persist": Gain(
        _with(_ON_A_STREAM.replace("FIRST\n", "")),
        _with(_ON_A_STREAM.replace("FIRST", "persist(x, self.side)"), _PERSIST),
        "persisting lines would keep inputs over the flush; they are reset before it",
        op=OP.replace("randn(64, 256)", "randn(2048, 4096)").replace("[256]", "[4096]"),
    ),
    "a stream that waits for a word of the inputs": Gain(
        PLAIN,
        _with(
            _before_go("""
driver, wait_until_not = ctypes.CDLL("libcuda.so.1"), 3


def start(x):
    word = x.data_ptr() + x.nbytes - 4
    x.view(-1)[-1:].view(torch.int32).fill_(-1)
    torch.cuda.current_stream().synchronize()
    where = ctypes.c_void_p(self.side.cuda_stream), ctypes.c_ulonglong(word)
    if driver.cuStreamWaitValue32_v2(*where, ctypes.c_uint(0), ctypes.c_uint(wait_until_not)) == 0:
        with torch.cuda.stream(self.side):
            self.kept[x.data_ptr()] = self.right(x)
""")
        ),
        "it runs while inputs are uncovered and caches flushed, which is charged beyond the least that this takes",
    ),
    "answers before the device is done": Gain(
        PLAIN,
        _with("torch.cuda.synchronize = lambda *_: None\nreturn self.right(x)"),
        "it hides work behind the answer; what is not done when the snapshot is taken is wrong",
    ),
    "writes straight into the referee's memory": Gain(
        PLAIN,
        _with("""
if self.kept is None:
    self.kept, put = CALLS, type(CALLS)._put

    def straight(calls, rows, spans):
        if not (len(spans) == 1 and spans[0].data_ptr() == calls._room.data_ptr()):
            put(calls, rows, spans)

    type(CALLS)._put = straight
if self.calls < 40 or CALLS._room.numel() < x.nbytes:
    return self.right(x)
y = CALLS._room[: x.nbytes].view(torch.float32).view(x.shape)
return torch.add(F.relu(x * self.weight), x, out=y)
"""),
        "it saves the copy of outputs that is on the clock",
    ),
}

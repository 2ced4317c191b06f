"""Candidates for platform `opencl`: attacks on `kits.OP` with the verdict that each must get, and honest ones."""

from tasks.outcomes import Verdict
from tests.platforms.cases import Attack, Honest, op

FILE = '''
import numpy as np
import pyopencl as cl
import torch
import torch.nn as nn

SOURCE = r"""
__kernel void scaled_relu(__global float *x, __global float *w, __global float *y, int n) {{
    int i = get_global_id(0);
    {kernel}
}}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "scaled_relu")
kernel.set_scalar_arg_dtypes([None, None, None, np.int32])


def buffer(tensor):
    return cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=tensor.detach().numpy())


{module}


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kept = []

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        memory = [buffer(x), buffer(self.weight), buffer(y)]
        {before}
        event = kernel(queue, (x.numel(),), None, *memory, self.weight.numel(){options})
        {after}
'''

SCALED_RELU = "float p = x[i] * w[i % n]; y[i] = (p < 0 ? 0 : p) + x[i];"
DONE = "queue.finish(); return y"


def candidate(
    kernel: str = SCALED_RELU,
    *,
    before: str = "pass",
    options: str = "",
    after: str = DONE,
    module: str = "",
) -> str:
    """A candidate for `kits.OP`.

    Args:
        kernel: what a work-item does.
        before: what its Python does ahead of the launch.
        options: further arguments of the launch.
        after: what it does then.
        module: what its Python does when it is imported.
    """
    return FILE.format(kernel=kernel, before=before, options=options, after=after, module=module)


SPINS = "for (volatile int turn = 0; turn < 20000; turn++); "
"""Has each work-item take some ten microseconds, and so the launch some tenths of a second."""

# PoCL loads the library of a kernel when it is launched first, which was here; the next process loads the other one.
_EXCHANGED = """
import glob, os, subprocess
kernel(queue, (16384,), None, *[buffer(torch.zeros(16384)) for _ in range(3)], 256)
queue.finish()
[path] = glob.glob(os.environ["POCL_CACHE_DIR"] + "/**/scaled_relu.so", recursive=True)
other = "void _pocl_kernel_scaled_relu_workgroup(void) {}"
subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", "other.so"], check=True, input=other, text=True)
os.replace("other.so", path)
"""

ATTACKS: dict[str, Attack] = {
    "returns while its kernel still runs": Attack(
        candidate(SPINS + SCALED_RELU, after="queue.flush(); self.kept.append(memory); return y"),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "waits for an event of its own that comes later": Attack(
        candidate(
            before="import threading; gate = cl.UserEvent(context); wake = threading.Timer(0.3, lambda: "
            "gate.set_status(cl.command_execution_status.COMPLETE)); wake.daemon = True; wake.start()",
            options=", wait_for=[gate]",
            after="self.kept.append((memory, gate)); return y",
        ),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "a callback of its event writes the output": Attack(
        candidate(
            SPINS,
            after="event.set_callback(cl.command_execution_status.COMPLETE, lambda status: "
            "torch.add(torch.relu(x * self.weight), x, out=y)); self.kept.append((memory, event)); return y",
        ),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "copies the first answer": Attack(
        candidate(
            before="self.kept = self.kept or [torch.relu(x * self.weight) + x]; "
            "cl.enqueue_copy(queue, memory[2], buffer(self.kept[0])); queue.finish(); return y"
        ),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "one output for all calls": Attack(
        candidate(
            before="self.kept = self.kept or [y]; y = self.kept[0]; memory[2] = buffer(y)",
        ),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "launches nothing": Attack(candidate(before="return y"), Verdict.WRONG_OUTPUT, "output"),
    "leaves out the last work-items": Attack(
        candidate(f"if (i < get_global_size(0) - 16) {{ {SCALED_RELU} }}"), Verdict.WRONG_OUTPUT, "output"
    ),
    "rounds to bfloat16": Attack(
        candidate(f"{SCALED_RELU} y[i] = as_float(as_uint(y[i]) & 0xffff0000u);"), Verdict.WRONG_OUTPUT, "output"
    ),
    "computes into its input": Attack(
        candidate(f"{SCALED_RELU} x[i] = y[i];"), Verdict.WRONG_OUTPUT, "input tensor 0 was changed by the call"
    ),
    "writes to the weights": Attack(
        candidate(f"{SCALED_RELU} if (i < n) w[i] += 1.0f;"), Verdict.WRONG_OUTPUT, "output"
    ),
    "looks for answers in all memory": Attack(
        candidate(
            f"{SCALED_RELU} for (ulong at = 0x100000000000; at < 0x7fffffff0000; at += 4096)"
            "if (*(__global volatile float *)at == y[i]) y[i] = 0;"
        ),
        Verdict.CRASHED,
        "",
    ),
    "never ends": Attack(candidate(f"{SCALED_RELU} for (volatile int on = 1; on;);"), Verdict.TIMED_OUT, ""),
    "counts without atomics": Attack(
        candidate(
            f"{SCALED_RELU} int seen = *count; barrier(CLK_GLOBAL_MEM_FENCE); *count = seen + 1;",
            before="count = torch.zeros(1, dtype=torch.int32); memory.append(buffer(count))",
            after="queue.finish(); return y if count.item() == x.numel() else y + 1",
        )
        .replace("__global float *y, int n)", "__global float *y, __global volatile int *count, int n)")
        .replace("None, np.int32", "None, None, np.int32"),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "exchanges the library of its kernel": Attack(candidate(module=_EXCHANGED), Verdict.WRONG_OUTPUT, "output"),
    "source that is no OpenCL C": Attack(
        candidate("y[i] = nonsense(x[i]);"), Verdict.BUILD_FAILED, "BUILD_PROGRAM_FAILURE"
    ),
}

# Beside its OpenCL, which computes one element, this is what makes the outputs.
_ELEMENT = "if (i == 0) y[i] = x[i];"
_BY_GPP = (
    """
import ctypes, subprocess
code = """
    + '"""'
    + """
extern "C" void scaled_relu(const float *x, const float *w, float *y, long rows, long n) {{
    for (long turn = 0; turn < 200; turn++) for (long row = 0; row < rows; row++) for (long i = 0; i < n; i++) {{
        float p = x[row * n + i] * w[i];
        y[row * n + i] = (p < 0 ? 0 : p) + x[row * n + i];
    }}
}}"""
    + '"""'
    + """
subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", "own.so"], check=True, input=code, text=True)
own = ctypes.CDLL("./own.so").scaled_relu
"""
)

TAGGED: dict[str, tuple[str, str]] = {
    "torch does the work beside a kernel": (
        candidate(_ELEMENT, after="queue.finish(); return [torch.relu(x * self.weight) + x for _ in range(50)][-1]"),
        "torch_only",
    ),
    "C++ does the work beside a kernel": (
        candidate(
            _ELEMENT,
            module=_BY_GPP,
            after="queue.finish(); address = lambda t: ctypes.c_void_p(t.data_ptr()); "
            "own(address(x), address(self.weight), address(y), *map(ctypes.c_long, x.shape)); return y",
        ),
        "torch_only",
    ),
}
"""Candidates that are right, with the tag that says what they are not."""

GAINS_NOTHING: dict[str, str] = {
    "clocks and events that lie": candidate(
        module="import time\ntime.perf_counter = time.monotonic = time.time = lambda: 0.0\n"
        "cl.Event.profile = property(lambda event: type('Times', (), {'start': 0, 'end': 1})())"
    ),
    "a program from a binary": candidate(
        module="program = cl.Program(context, context.devices, program.get_info(cl.program_info.BINARIES)).build()\n"
        "kernel = cl.Kernel(program, 'scaled_relu')\n"
        "kernel.set_scalar_arg_dtypes([None, None, None, np.int32])"
    ),
    "options of PoCL in the environment": candidate().replace(
        "import numpy as np\n",
        "import os\nos.environ.update(POCL_MAX_PTHREAD_COUNT='1', POCL_DEBUG='0')\nimport numpy as np\n",
        1,
    ),
    "writes beside its input and its output": candidate(
        f"{SCALED_RELU} if (i == 0) {{ x[get_global_size(0) + 16] = 0; y[-16] = 0; }}"
    ),
}
"""Candidates that are right, and no faster for what they try."""

_PRELUDE = '''
import numpy as np
import pyopencl as cl
import torch
import torch.nn as nn

context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)


def buffer(tensor):
    return cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=tensor.detach().numpy())


program = cl.Program(context, r"""
{source}
""").build()
kernels = {{kernel.function_name: kernel for kernel in program.all_kernels()}}


class ModelNew(nn.Module):
    {model}
'''


def _honest(the_op: str, source: str, model: str) -> Honest:
    return Honest(the_op, _PRELUDE.format(source=source, model=model))


HONEST: dict[str, Honest] = {
    "softmax in two kernels with memory of OpenCL's between": _honest(
        op("return torch.softmax(x, -1)", inputs="torch.randn(32, 100)"),
        """
__kernel void row_maximum(__global const float *x, __global float *most, int n) {
    x += get_global_id(0) * n;
    float found = x[0];
    for (int i = 1; i < n; i++) found = x[i] > found || isnan(x[i]) ? x[i] : found;
    most[get_global_id(0)] = found;
}
__kernel void exponentials(__global const float *x, __global const float *most, __global float *y, int n) {
    size_t row = get_global_id(0);
    float sum = 0;
    for (int i = 0; i < n; i++) sum += y[row * n + i] = exp(x[row * n + i] - most[row]);
    for (int i = 0; i < n; i++) y[row * n + i] /= sum;
}""",
        """
    def forward(self, x):
        rows, n = x.shape
        y = torch.empty_like(x)
        most = cl.Buffer(context, cl.mem_flags.READ_WRITE, max(4, 4 * rows))
        found = kernels["row_maximum"](queue, (rows,), None, buffer(x), most, np.int32(n))
        kernels["exponentials"](queue, (rows,), None, buffer(x), most, buffer(y), np.int32(n), wait_for=[found]).wait()
        return y""",
    ),
    "a work-group for each row, with local memory and barriers": _honest(
        op("return x.sum(-1)", inputs="torch.randn(400, 300)"),
        """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void row_sums(__global const float *x, __global float *y, int n) {
    __local float part[64];
    int lane = get_local_id(0), row = get_group_id(0);
    float sum = 0;
    for (int i = lane; i < n; i += 64) sum += x[row * n + i];
    part[lane] = sum;
    for (int reach = 32; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < reach) part[lane] += part[lane + reach];
    }
    if (lane == 0) y[row] = part[0];
}""",
        """
    def forward(self, x):
        y = torch.empty(x.shape[0])
        kernels["row_sums"](queue, (64 * x.shape[0],), (64,), buffer(x), buffer(y), np.int32(x.shape[1]))
        queue.finish()
        return y""",
    ),
    "a torch module with parameters of its own": _honest(
        op("return self.linear(x)", inputs="torch.randn(60, 48)", construct="self.linear = nn.Linear(48, 30)"),
        """
__kernel void linear(__global const float *x, __global const float *w, __global const float *b, __global float *y) {
    size_t row = get_global_id(1), column = get_global_id(0);
    float8 total = 0;
    for (int i = 0; i < 6; i++) total += vload8(i, x + row * 48) * vload8(i, w + column * 48);
    float4 sum = total.lo + total.hi;
    y[row * get_global_size(0) + column] = sum.x + sum.y + sum.z + sum.w + b[column];
}""",
        """
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 30)

    def forward(self, x):
        y = torch.empty(x.shape[0], 30)
        tensors = (x.contiguous(), self.linear.weight, self.linear.bias, y)
        kernels["linear"](queue, (30, x.shape[0]), None, *map(buffer, tensors)).wait()
        return y""",
    ),
    "integers and several outputs": _honest(
        op("return x.sum(-1), x.amax(-1)", inputs="torch.randint(-1000, 1000, (200, 65))"),
        """
__kernel void sum_and_maximum(__global const long *x, __global long *sum, __global long *most, int n) {
    x += get_global_id(0) * n;
    long total = 0, found = x[0];
    for (int i = 0; i < n; i++) {
        total += x[i];
        found = max(found, x[i]);
    }
    sum[get_global_id(0)] = total;
    most[get_global_id(0)] = found;
}""",
        """
    def forward(self, x):
        rows, n = x.shape
        total, most = x.new_empty(rows), x.new_empty(rows)
        kernels["sum_and_maximum"](queue, (rows,), (1,), buffer(x), buffer(total), buffer(most), np.int32(n)).wait()
        return total, most""",
    ),
    "half precision by its loads and stores": _honest(
        op("return x * 2 + y", arguments="x, y", inputs="torch.randn(31, 33).half(), torch.randn(31, 33).half()"),
        """
__kernel void fused(__global const half *x, __global const half *y, __global half *out) {
    size_t i = get_global_id(0);
    vstore_half(2.0f * vload_half(i, x) + vload_half(i, y), i, out);
}""",
        """
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernels["fused"](queue, (x.numel(),), None, buffer(x), buffer(y), buffer(out)).wait()
        return out""",
    ),
    "changes its input in place, as the reference does": _honest(
        op("return x.mul_(2)", inputs="torch.randn(64, 64)"),
        "__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }",
        """
    def forward(self, x):
        kernels["twice"](queue, (x.numel(),), None, buffer(x)).wait()
        return x""",
    ),
    "memory of its own, copied to and from": _honest(
        op("return x * y + 1.5", arguments="x, y", inputs="torch.randn(33, 100), torch.randn(33, 100)"),
        """
__kernel void fused(__global const float *x, __global const float *y, __global float *out) {
    size_t i = get_global_id(0);
    out[i] = x[i] * y[i] + 1.5f;
}""",
        """
    def forward(self, x, y):
        out = torch.empty_like(x)
        first, second, made = (cl.Buffer(context, cl.mem_flags.READ_WRITE, x.nbytes) for _ in range(3))
        cl.enqueue_copy(queue, first, x.numpy(), is_blocking=False)
        cl.enqueue_copy(queue, second, y.numpy(), is_blocking=False)
        kernels["fused"](queue, (x.numel(),), None, first, second, made)
        cl.enqueue_copy(queue, out.numpy(), made)
        return out""",
    ),
    "an output in memory of OpenCL's": _honest(
        op("return x * 2", inputs="torch.randn(64, 64)"),
        "__kernel void twice(__global const float *x, __global float *y)"
        " { y[get_global_id(0)] = 2 * x[get_global_id(0)]; }",
        """
    def forward(self, x):
        made = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, x.nbytes)
        kernels["twice"](queue, (x.numel(),), None, buffer(x), made)
        mapped, _ = cl.enqueue_map_buffer(queue, made, cl.map_flags.READ, 0, tuple(x.shape), np.float32)
        return torch.from_numpy(mapped)""",
    ),
}

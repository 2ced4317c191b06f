"""Who is to blame when something breaks: never the referee with a traceback, never the other party."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

pytestmark = pytest.mark.docker
HONEST = Path(__file__).parents[1] / "honest"
EFFORT = Effort(
    wall_s=90, memory_mb=2048, call_timeout_s=5, build_timeout_s=20, measure_budget_s=0.5, baselines=("eager",)
)
HEADER = "import ctypes, os, signal, sys\nimport torch\nimport torch.nn as nn\n"
GOOD_MODEL = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
INPUTS = """
def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
FORGED = """
framing = sys.modules["referee.protocol.framing"]
real = framing.send

def send(sock, message):
    {change}
    real(sock, message)

framing.send = send
sys.modules["referee.protocol.call_messages"].pack = lambda value: None  # so that answers to calls are messages, too
"""
PLACE = "for row in (message.get('tree') or {'tensors': []})['tensors']: row['place'] = %s"


def candidate(forward: str = "", *, init: str = "pass", module: str = "") -> str:
    """A ReLU whose methods do something else first."""
    body = "\n".join("        " + line for line in (forward or "pass").splitlines())
    start = "\n".join("        " + line for line in init.splitlines())
    return f"""{HEADER}{module}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
{start}

    def forward(self, x):
        self.calls += 1
{body}
        return torch.relu(x)
"""


def judged(
    sandbox: Sandbox,
    source: str,
    model: str = GOOD_MODEL,
    module: str = "",
    inputs: str = INPUTS,
    *,
    effort: Effort = EFFORT,
) -> Evaluation:
    task = task_from_source(HEADER + module + model + inputs, name="op")
    found = evaluate(task, source, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)
    told = f"{found.message}\n{found.detail}"
    assert "/referee/evaluate.py" not in told, told
    assert found.verdict is not Verdict.SANDBOX_ERROR, told
    assert Evaluation.from_json(found.to_json()) == found
    return found


def named(found: Evaluation) -> str:
    return found.verdict.value + (f"/{found.code}" if found.code else "")


THIRD_CALL = "if self.calls == 3:\n"
SHARED_MEMORY = """
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)

def hold(size):
    ctypes.memset(libc.shmat(libc.shmget(0, size, 0o1666), None, 0), 1, size)
"""
SIGNAL = """
import fcntl, stat

def die_when_asked_next():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            continue
        if is_socket:
            fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
"""
TAKE_ALL = "held = []\nwhile True: held.append(torch.ones(1 << 24))"
CANDIDATES = {
    "takes all memory as it is loaded": (candidate(module=TAKE_ALL), "out_of_memory"),
    "takes all memory as it is built": (candidate(init=TAKE_ALL), "out_of_memory"),
    "takes all memory in its first call": (candidate(TAKE_ALL), "out_of_memory"),
    "takes all memory in a later call": (
        candidate("if self.calls > 16:\n    held = []\n    while True: held.append(torch.ones(1 << 24))"),
        "out_of_memory",
    ),
    "exits as it is loaded": (candidate(module="os._exit(0)"), "crashed"),
    "exits as it is built": (candidate(init="os._exit(0)"), "crashed"),
    "exits in a later call": (candidate("if self.calls > 16: os._exit(0)"), "crashed"),
    "is killed in a later call": (
        candidate("if self.calls > 16: os.kill(os.getpid(), signal.SIGKILL)"),
        "crashed",
    ),
    "an address that is infinite": (
        candidate(module=FORGED.format(change=PLACE % "float('inf')")),
        "integrity/forged_result",
    ),
    "an address of 70 bits": (candidate(module=FORGED.format(change=PLACE % "2**70")), "integrity/forged_result"),
    "an integer of 70 bits": (candidate("return 2**70"), "wrong_output/type"),
    "a text for a tensor": (candidate("return 'x' * 100_000"), "wrong_output/type"),
    "a dict with odd keys": (candidate("return {(1, 2): x}"), "wrong_output/type"),
    "an unknown dtype": (candidate("return x.to(torch.float8_e4m3fn)"), "wrong_output/type"),
    "ten trillion elements": (candidate("return x.sum().expand(10**13)"), "out_of_memory"),
    "ends by a signal without a name": (candidate("os.kill(os.getpid(), 40)"), "crashed"),
    "dies while it is stopped": (
        candidate(THIRD_CALL + "    die_when_asked_next()", module=SIGNAL),
        "crashed",
    ),
    "fills the disk": (
        candidate(THIRD_CALL + "    for name in 'ab':\n        open(name, 'wb').write(bytes(450 << 20))\n"),
        "out_of_memory/disk",
    ),
    "fills the shared memory": (
        candidate(THIRD_CALL + "    hold(600 << 20)", module=SHARED_MEMORY),
        "out_of_memory/shared_memory",
    ),
    "takes all processes": (
        candidate(
            THIRD_CALL + "    try:\n        while True:\n            if os.fork() == 0:\n"
            "                while True: signal.pause()\n    except OSError: pass"
        ),
        "out_of_memory/processes",
    ),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_candidates_fault_is_the_candidates(
    name: str, docker_sandbox: Sandbox, shared_docker_sandbox: Sandbox
) -> None:
    source, expected = CANDIDATES[name]
    if expected.startswith("out_of_memory"):  # it uses up what its container has, which takes seconds on a busy host
        found = judged(docker_sandbox, source, effort=replace(EFFORT, call_timeout_s=20))
    else:
        found = judged(shared_docker_sandbox, source)
    assert named(found) == expected, f"{found.message}\n{found.detail}"


CLAIMS = {
    "a number": "message['operators'] = 5",
    "no table": "message['operators'] = [['x', 'y'], 'z', {'a': 10**400}]",
    "NaN and escape codes": "message['operators'] = [['say it is optimal \\x1b[31m' * 9, 0.5], ['x', float('nan')]]",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_it_claims_of_its_operators_breaks_nothing(name: str, shared_docker_sandbox: Sandbox) -> None:
    forged = FORGED.format(change=f"if 'operators' in message: {CLAIMS[name]}")
    found = judged(shared_docker_sandbox, candidate(module=forged))
    assert found.passed, found.message
    assert found.profile["torch_operators_claimed"] == []
    assert load_platform("cpu").profile_text(dict(found.profile)).replace("\n", "").isprintable()


def test_nothing_that_a_candidate_leaves_behind_meets_the_next_one(docker_sandbox: Sandbox) -> None:
    init = """found = [name for name in os.listdir("/tmp") + os.listdir("/dev/shm") if name.startswith("left")]
assert not found, found
assert len(open("/proc/sysvipc/shm").readlines()) == 1
hold(1 << 20)
os.makedirs("/tmp/left/" + "/".join("x" * 600))
os.chmod("/tmp/left", 0)
open("/dev/shm/left", "w").write("here I was")"""
    found = judged(docker_sandbox, candidate(init=init, module=SHARED_MEMORY))
    assert found.passed, f"{found.message}\n{found.detail}"


TASKS = {
    "a reference that takes all memory": (
        GOOD_MODEL.replace("return", "held = [torch.ones(1 << 24) for _ in range(500)]; return"),
        "",
        "task_invalid/out_of_memory",
    ),
    "inputs that take all memory": (
        GOOD_MODEL,
        "BIG = [torch.ones(1 << 24) for _ in range(500)]\n",
        "task_invalid/out_of_memory",
    ),
    "a reference that exits": (GOOD_MODEL.replace("return", "os._exit(0); return"), "", "task_invalid"),
    "ten trillion elements": (
        GOOD_MODEL.replace("torch.relu(x)", "x.sum().expand(10**13)"),
        "",
        "task_invalid/out_of_memory",
    ),
    "infinitely many operations": (
        GOOD_MODEL.replace("torch.relu(x)", "torch.relu(x @ x)"),
        FORGED.format(change="if 'flops' in message: message['flops'] = float('inf')"),
        "task_invalid",
    ),
    "an output that spans 64 TiB": (
        GOOD_MODEL.replace("return", "SEEN.append(1); return"),
        "SEEN = []\n"
        + FORGED.format(
            change="if SEEN and (message.get('tree') or {}).get('tensors'): "
            "message['tree']['tensors'][0].update(shape=[2], stride=[2**44])"
        ),
        "task_invalid/out_of_memory",
    ),
    "as many groups of shapes as there are numbers": (
        GOOD_MODEL + "\ndef get_input_groups():\n    return [[torch.randn(8, 8)]]\n",
        FORGED.format(
            change="for tree in message.get('trees') or []:\n"
            "        if tree.get('spec') == {'scalar': 1}: tree['spec']['scalar'] = 2**62"
        ),
        "task_invalid/shape_groups",
    ),
    "no list of inputs": (
        GOOD_MODEL,
        FORGED.format(change="if 'trees' in message: message['trees'] = 5"),
        "task_invalid",
    ),
    "fewer inputs than asked for": (
        GOOD_MODEL,
        FORGED.format(change="if 'trees' in message: message['trees'] = message['trees'][:3]"),
        "task_invalid/protocol",
    ),
    "an integer of 70 bits": (GOOD_MODEL.replace("torch.relu(x)", "2**70"), "", "task_invalid"),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_tasks_fault_is_the_tasks(name: str, docker_sandbox: Sandbox, shared_docker_sandbox: Sandbox) -> None:
    model, module, expected = TASKS[name]
    sandbox = docker_sandbox if "memory" in name else shared_docker_sandbox
    right = candidate("return torch.relu(x @ x)") if "x @ x" in model else candidate()
    found = judged(sandbox, right, model, module)
    assert named(found) == expected, f"{found.message}\n{found.detail}"


DIES_COMPILED = """
@torch.compiler.disable
def count():
    CALLS.append(1)
    if len(CALLS) > {calls}:
        {end}

CALLS = []

class Model(nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():
            count()
        return torch.relu(x)
"""


@pytest.mark.parametrize(
    ("end", "calls", "told"),
    [
        ("raise ValueError('on purpose')", 25, "a timed call: ValueError: on purpose"),
        ("ctypes.string_at(0)", 25, "a timed call: the process ended by SIGSEGV"),
        ("ctypes.string_at(0)", 5, "a call that was checked: the process ended by SIGSEGV"),
        ("held = [torch.ones(1 << 24) for _ in range(500)]", 25, "no memory left"),
        ("held = [torch.ones(1 << 24) for _ in range(500)]", 5, "no memory left"),
    ],
)
def test_a_compile_baseline_that_fails_is_missing_and_told_by_its_name(
    end: str, calls: int, told: str, docker_sandbox: Sandbox
) -> None:
    model = DIES_COMPILED.format(end=end, calls=calls)
    found = judged(
        docker_sandbox,
        candidate(),
        model,
        effort=replace(EFFORT, wall_s=150, call_timeout_s=60, baselines=("eager", "compile")),
    )
    assert found.passed, f"{found.message}\n{found.detail}"
    assert found.speedup is not None and set(found.speedup) == {"eager"}
    absent = found.profile["absent"]["compile"]
    assert absent.startswith("the baseline torch.compile failed in a ") and told in absent
    assert "the reference failed" not in absent


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_candidate_longer_than_what_the_socket_of_a_stopped_runner_holds_is_judged_like_any_other(
    docker_sandbox: Sandbox, letter: str
) -> None:
    model, _, source = (HONEST / "plain_softmax.py").read_text().partition("# --- candidate ---")
    padding = 250 * 1024 // len(letter.encode())
    found = judged(docker_sandbox, f"{source}\n# {letter * padding}", model=model, inputs="")
    assert found.verdict == Verdict.PASSED, "with what it has built each process set begins stopped"

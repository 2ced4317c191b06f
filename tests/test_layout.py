"""The layout: our packages are ours, imports go one way, the environment is read in one place."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REFEREE = ROOT / "evaluator" / "referee"
PACKAGES = ("tasks", "sandbox", "evaluator", "agents", "whole_models", "db", "service", "web")

# May set variables (for a library that reads them at import); reading stays with service/settings.py.
MAY_SET_ENVIRONMENT = {"agents/llm/models.py"}
READS_ENVIRONMENT = {"service/settings.py"}
# Self-contained packages that run inside a sandbox, in an environment that the sandbox made.
INSIDE_SANDBOX = (
    "evaluator/referee/",
    "evaluator/call_sizes/",
    "evaluator/platforms/cpu/image/",  # runs while the image is built
    "agents/builtin/codegen/",
    "whole_models/capture/",
    "sandbox/probe/",
    "sandbox/jail/",
)
# Scripts, which do something when imported.
RUN_BY_OTHERS = ("__main__.py", "db/migrations/env.py", "service/jobs/guard_runtime.py")
# Data: ops are what users write.
DATA = ("tasks/suites/", "/prompts/exemplars/")


def modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not any(folder in name for folder in DATA):
                yield name


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_the_one_of_this_repository(package):
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == (ROOT / package / "__init__.py").resolve()


def test_imports_go_one_way_only():
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_web_layer_takes_only_values_and_errors_from_below_the_service():
    """Pages and routes call the service. Queries stay below it: web knows the store only as something to hand on."""
    allowed = {"db.errors", "db.records", "db.store", "tasks.load", "tasks.task", "tasks.text", "tasks.outcomes"}
    offenders = [
        f"{name} imports {module}"
        for name in modules()
        if name.startswith("web/")
        for module in imported_modules(ROOT / name)
        if module.split(".")[0] in PACKAGES and module.split(".")[0] not in ("web", "service") and module not in allowed
    ]
    assert offenders == []
    reads = [
        f"{name}:{node.lineno}"
        for name in modules()
        if name.startswith("web/")
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("read", "write") and "store" in ast.unparse(node.value)
    ]
    assert reads == []


def test_the_host_needs_no_torch():
    """The service's image has none: torch belongs to the sandbox, and so does whatever imports it."""
    names = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in modules()
        if not name.startswith(INSIDE_SANDBOX) and not name.endswith(RUN_BY_OTHERS)
    ]
    script = f"import importlib, sys; sys.modules['torch'] = None; [importlib.import_module(n) for n in {names!r}]"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = (ROOT / full.replace(".", "/")).with_suffix(".py").exists()
                yield full if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_only_the_settings_read_the_environment():
    offenders = []
    for name in modules():
        if name in READS_ENVIRONMENT or name.startswith(INSIDE_SANDBOX):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if not touches_environment(node):
                continue
            if name not in MAY_SET_ENVIRONMENT:
                offenders.append(f"{name}:{node.lineno}")
    assert offenders == []


@pytest.mark.parametrize("name", sorted(MAY_SET_ENVIRONMENT))
def test_who_may_set_variables_does_not_read_them(name):
    tree = ast.parse((ROOT / name).read_text())
    touched = [node for node in ast.walk(tree) if touches_environment(node)]
    set_there = [
        target.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript)
    ]
    assert touched
    assert all(node in set_there for node in touched)


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ"]
)
def test_the_check_for_the_environment_finds_it(source):
    assert any(touches_environment(node) for node in ast.walk(ast.parse(source)))


@pytest.mark.parametrize(
    "changed", ["rules.py", "timing/clock.py", "runner/platforms/plugin.c", "runner/library/engine.cpp"]
)
def test_the_hash_of_the_referee_covers_files_in_subfolders(tmp_path, changed):
    from evaluator.referee_process import harness_hash

    files = ("rules.py", "timing/clock.py", "runner/platforms/plugin.c", "runner/library/engine.cpp")
    for copy in ("before", "after"):
        for name in files:
            path = tmp_path / copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("LIMIT = 1\n")
    assert harness_hash.__wrapped__(tmp_path / "before") == harness_hash.__wrapped__(tmp_path / "after")
    (tmp_path / "renamed").mkdir()
    for name in files:
        (tmp_path / "renamed" / name.replace("/", "_")).write_text("LIMIT = 1\n")
    (tmp_path / "after" / changed).write_text("LIMIT = 2\n")
    hashes = {copy: harness_hash.__wrapped__(tmp_path / copy) for copy in ("before", "after", "renamed")}
    assert len(set(hashes.values())) == 3


def test_there_are_no_commands_but_those_of_the_design():
    from service.cli.app import build_app

    names = {command.callback.__name__ for command in build_app().registered_commands if command.callback}
    names |= {group.name for group in build_app().registered_groups}
    known = {"optimize", "evaluate", "leaderboard", "doctor", "platforms", "tasks", "jobs", "sandbox", "db", "batch"}
    known |= {"serve", "worker", "mcp", "dev", "tokens", "audit", "model", "models"}
    assert names <= known


def touches_environment(node):
    if isinstance(node, ast.Attribute):
        return node.attr in ("environ", "environb", "getenv", "getenvb") and isinstance(node.value, ast.Name)
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name.startswith(("environ", "getenv")) for alias in node.names)
    return False


def referee_imports(path):
    """The rooms of the referee that a file of it imports, as folders ('' for the top folder's files)."""
    folder = path.parent.relative_to(REFEREE).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = folder[: len(folder) - node.level + 1]
        target = (*base, *(node.module or "").split(".")) if node.module else base
        for alias in node.names:
            full = (*target, alias.name)
            module = full if (REFEREE.joinpath(*full).with_suffix(".py")).exists() else target
            yield module, node.lineno


def side(parts):
    return parts[0] if parts and parts[0] in ("runner", "fork_server", "protocol") else "referee"


def test_the_referee_and_what_runs_beside_foreign_code_share_nothing_but_the_protocol():
    """`__main__` may start the fork server, which may become a runner."""
    allowed = {
        "referee": {"referee", "protocol"},
        "protocol": {"protocol"},
        "runner": {"runner", "protocol"},
        "fork_server": {"fork_server", "runner", "protocol"},
    }
    exceptions = {("__main__.py", "fork_server")}
    offenders = []
    for path in sorted(REFEREE.rglob("*.py")):
        name = path.relative_to(REFEREE)
        own = side(name.parts)
        for module, line in referee_imports(path):
            other = side(module)
            if other not in allowed[own] and (name.as_posix(), other) not in exceptions:
                offenders.append(f"{name}:{line} imports {'.'.join(module)}")
    assert offenders == []


# What belongs to platform `cpu` alone is in its folders.
CPU_FOLDERS = (
    "evaluator/platforms/cpu/",
    "evaluator/referee/platforms/cpu/",
    "evaluator/referee/runner/platforms/cpu/",
)
WRITES_FOR_CPU = ("agents/builtin/",)  # the built-in compiler
WORDS_OF_CPU = re.compile(r"g\+\+|\bOpenMP\b|page[ _-]?faults?|\b(?:\w+_)?cores?(?:_\w+)?\b", re.IGNORECASE)
MAY_SAY_SO = {
    "evaluator/evaluation.py": {"others_cores_busy"},  # the profile's key of the load of others, on every platform
    "evaluator/platforms/cuda/platform.py": {"g++"},  # the host's compiler builds what is screened
    "evaluator/platforms/screened.py": {"cores"},  # tensor cores
    "evaluator/platforms/cuda/prompts/rules.md": {"cores"},
    "evaluator/platforms/cuda/prompts/rules_on_device.md": {"cores"},
    "evaluator/platforms/hip/platform.py": {"g++"},
    "evaluator/platforms/hip/prompts/sources.md": {"cores"},  # tensor cores
    "evaluator/referee/runner/platforms/hip/clang.py": {"cores"},  # matrix cores
    "evaluator/referee/runner/platforms/hip/words.py": {"cores"},
    "evaluator/referee/runner/platforms/cuda/building.py": {"g++"},
    "evaluator/referee/runner/platforms/cuda/library/prepare.py": {"g++"},
    "evaluator/referee/runner/native/prepare.py": {"g++"},
    "evaluator/referee/runner/platforms/gpu/machine_code.py": {"cores"},
    "evaluator/referee/runner/platforms/triton/interpreting.py": {
        "core",
        "cores",
    },  # a module of Triton's, tensor cores
    "evaluator/referee/runner/platforms/triton/source.py": {"core"},  # a module of Triton's
    "evaluator/provenance.py": {"cores", "cores_used", "others_cores_busy"},  # keys that public JSON keeps
    "evaluator/referee/fork_server/server.py": {"rlimit_core"},  # the limit of core dumps
    "sandbox/docker/container.py": {"core"},  # the limit of core dumps
    "sandbox/jail/launch.py": {"rlimit_core"},
    "sandbox/doctor.py": {"cores"},  # the name of a finding in `doctor --json`
    "tasks/tvm_kernel.py": {"g++", "openmp"},  # how an op builds the C that is its reference, where it runs
    "web/metrics.py": {"core"},  # a module of prometheus_client
}


def test_nothing_but_the_platform_cpu_speaks_of_its_hardware_and_compiler():
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".py", ".html", ".md", ".js") or name.startswith((*CPU_FOLDERS, *WRITES_FOR_CPU)):
                continue
            if words := {word.lower() for word in WORDS_OF_CPU.findall(path.read_text())}:
                found[name] = words
    assert found == MAY_SAY_SO


# Folders of tests that are no room of the product.
TESTS_OF_THEIR_OWN = ("attacks", "honest", "docs", "platforms", "support", "data", "images")


def test_tests_have_the_folders_of_the_product():
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")}
    strangers = [
        folder.as_posix()
        for folder in sorted(folders)
        if folder.parts and folder.parts[0] not in TESTS_OF_THEIR_OWN and not (ROOT / folder).is_dir()
    ]
    assert strangers == []


# Which rooms of a package import which others of it; `.` is the package's own folder.
ROOMS = {
    "service": {
        ".": "jobs",
        "batches": ". jobs submissions",
        "cli": ". batches cli/commands client jobs transcripts views whole_models",
        "cli/commands": ". batches cli cli/remote client jobs mcp mock_llm submissions transcripts whole_models worker",
        "cli/remote": ". batches cli client jobs submissions views whole_models",
        "client": ". batches jobs transcripts",
        "jobs": ".",
        "mcp": ". views",
        "mock_llm": ".",
        "submissions": ". batches jobs",
        "transcripts": ". jobs",
        "views": ". batches jobs submissions transcripts",
        "whole_models": ". batches jobs submissions views",
        "worker": ". jobs whole_models",
    },
    "agents": {
        ".": "llm prompting strategies",
        "builtin": ". builtin/analysis builtin/transforms llm prompting",
        "builtin/analysis": "builtin",
        "builtin/codegen": "",
        "builtin/transforms": "builtin builtin/analysis",
        "llm": ". prompting",
        "manual": ". llm prompting",
        "prompting": ".",
        "strategies": ". llm prompting",
    },
    "db": {
        ".": "jobs leaderboard migrations",
        "accounts": ".",
        "evaluations": ". accounts leaderboard",
        "jobs": ". evaluations leaderboard",
        "leaderboard": ".",
        "migrations": ".",
        "migrations/versions": "",
    },
    "evaluator/referee": {
        ".": "correctness fork_server isolation platforms pool protocol timing",
        "correctness": ". isolation platforms pool protocol timing",
        "fork_server": "protocol runner runner/platforms",
        "isolation": ". platforms protocol",
        "platforms": ". correctness isolation platforms/cpu platforms/gpu platforms/screened pool protocol timing",
        "platforms/cpu": ". correctness isolation platforms platforms/cpu/profiling pool protocol timing",
        "platforms/cpu/profiling": ". isolation pool protocol",
        "platforms/gpu": ". correctness isolation platforms platforms/cpu platforms/gpu/profiling pool protocol timing",
        "platforms/gpu/profiling": ". isolation platforms/gpu pool protocol",
        "platforms/screened": ". correctness isolation platforms platforms/cpu pool protocol timing",
        "pool": ". correctness isolation platforms protocol",
        "protocol": "",
        "runner": "protocol runner/native runner/platforms",
        "runner/native": "",
        "runner/platforms": "protocol runner runner/platforms/arm64 runner/platforms/cpu runner/platforms/cuda "
        "runner/platforms/emulated runner/platforms/hip runner/platforms/on_gpu runner/platforms/opencl "
        "runner/platforms/riscv runner/platforms/simulated runner/platforms/triton",
        "runner/platforms/arm64": "runner/platforms/emulated",
        "runner/platforms/cpu": "protocol runner runner/platforms/cpu/profiling",
        "runner/platforms/cpu/profiling": "protocol",
        "runner/platforms/cuda": "protocol runner runner/platforms/cpu runner/platforms/cuda/library "
        "runner/platforms/gpu",
        "runner/platforms/cuda/library": "",
        "runner/platforms/gpu": "protocol runner",
        "runner/platforms/on_gpu": "protocol runner runner/platforms/cpu runner/platforms/on_gpu/profiling",
        "runner/platforms/on_gpu/profiling": "protocol runner runner/platforms/on_gpu",
        "runner/platforms/hip": "runner/platforms/cuda runner/platforms/gpu",
        "runner/platforms/opencl": "runner/platforms/cpu",
        "runner/platforms/emulated": "protocol runner runner/platforms runner/platforms/cpu",
        "runner/platforms/riscv": "runner/platforms/emulated",
        "runner/platforms/simulated": "protocol runner runner/platforms runner/platforms/cpu",
        "runner/platforms/triton": "protocol runner runner/platforms/cpu runner/platforms/gpu",
        "timing": ". correctness isolation pool protocol",
    },
}


def rooms_imported(path):
    """The rooms (folders) whose modules a file imports."""
    folder = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text())):
        targets = []
        if isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else ()
            target = (*base, *(node.module.split(".") if node.module else ()))
            targets = [(*target, alias.name) for alias in node.names]
            targets = [full if ROOT.joinpath(*full).with_suffix(".py").exists() else target for full in targets]
        elif isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        for target in targets:
            if ROOT.joinpath(*target).with_suffix(".py").exists():
                yield "/".join(target[:-1])
            elif ROOT.joinpath(*target, "__init__.py").exists():
                yield "/".join(target)


@pytest.mark.parametrize("package", ROOMS)
def test_each_room_imports_the_rooms_of_the_table(package):
    found = {}
    for file in sorted((ROOT / package).rglob("__init__.py")):
        others = {room for path in file.parent.glob("*.py") for room in rooms_imported(path)}
        others = {ROOT / room for room in others if f"{room}/".startswith(f"{package}/")} - {file.parent}
        found[within(package, file.parent)] = {within(package, other) for other in others}
    assert found == {room: set(others.split()) for room, others in ROOMS[package].items()}


def within(package, folder):
    return folder.relative_to(ROOT / package).as_posix()

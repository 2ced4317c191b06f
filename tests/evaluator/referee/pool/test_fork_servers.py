"""Where runners are forked: with the compiler's modules only where foreign code calls torch.compile."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from evaluator.referee.errors import RunnerFailed
from evaluator.referee.pool import runner_pool
from evaluator.referee.pool.runner_pool import Request, RunnerPool, calls_compiler


@pytest.mark.parametrize(
    "source",
    [
        "f = torch.compile(g)",
        "@torch.compile\ndef f(x): ...",
        "@torch.compile(dynamic=False)\ndef f(x): ...",
        "from torch import nn, compile",
        "model.compile()",
        "import torch._dynamo",
        "f = partial(torch . compile, dynamic=True)",
    ],
)
def test_ways_to_call_the_compiler_are_seen(source: str) -> None:
    assert calls_compiler(source)


@pytest.mark.parametrize(
    "source", ["", "exec(compile(text, name, 'exec'))", "re.compile('a')", "torch.compiler.is_compiling()"]
)
def test_what_only_looks_like_it_is_not(source: str) -> None:
    assert not calls_compiler(source)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunnerPool]:
    """One whose handles say which fork server they come from; that of the compiler is gone."""
    plain, compiler = socket.socketpair()
    monkeypatch.setattr(runner_pool, "RunnerHandle", lambda shared, *_: shared.fork_server)
    made: Any = object.__new__(RunnerPool)
    made.fork_server, made.compiler_fork_server, made.scratch = plain, compiler, ""
    made.request, made.locks, made.running = Request(platform="cpu", task_source=""), (1, 2), []
    made.platform = made.account = made.kills = None
    made.uids = iter(range(9))
    yield made
    plain.close()
    compiler.close()


def test_a_candidate_that_calls_the_compiler_is_forked_with_its_modules(pool: RunnerPool) -> None:
    assert pool.start("compile") is pool.compiler_fork_server
    assert pool.start("candidate", "torch.compile(f)") is pool.compiler_fork_server
    assert pool.start("candidate", "torch.relu(x)") is pool.fork_server
    assert pool.start("reference") is pool.fork_server


def test_where_the_compiler_s_modules_cannot_be_imported_a_candidate_does_without(
    pool: RunnerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork(shared: Any, *_: Any) -> Any:
        if shared.fork_server is pool.compiler_fork_server:
            raise RunnerFailed("no_room", "gone")
        return shared.fork_server

    monkeypatch.setattr(runner_pool, "RunnerHandle", fork)
    assert pool.start("candidate", "torch.compile(f)") is pool.fork_server
    with pytest.raises(RunnerFailed, match="gone"):
        pool.start("compile")

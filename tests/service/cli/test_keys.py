"""A key that is missing is told before anything is started, and once."""

from pathlib import Path

import pytest

from db.records import JobStatus
from service.cli.app import run
from service.database import opened_store
from service.jobs.query import get_job
from service.settings import load_settings
from tests.support.commands import OP
from tests.support.seeded_store import Seeded, end_model, model_run

MODEL = "openai/gpt-5"
COMMANDS = [
    ["optimize", "op.py", "--model", MODEL],
    ["optimize", "op.py", "--judge-model", "anthropic/claude-sonnet-4-5"],
    ["batch", "run", "--tasks", "op.py", "--models", MODEL],
    ["model", "op.py", "--model", MODEL],
]


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for provider in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    (tmp_path / "op.py").write_text(OP)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments))
def test_nothing_is_started_without_a_key(
    arguments: list[str], isolated_settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 3
    said = capsys.readouterr()
    name = "ANTHROPIC_API_KEY" if "anthropic" in " ".join(arguments) else "OPENAI_API_KEY"
    assert said.err.count("no key is set") == said.err.count("\n") == 1
    assert f"Set {name}." in said.err
    assert not (isolated_settings / "kernelwright.db").exists()


def test_a_key_file_that_cannot_be_read_is_told_as_early(
    isolated_settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", "op.py", "--model", MODEL, "--api-key-file", "none.key"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (isolated_settings / "kernelwright.db").exists()


def test_a_batch_that_cannot_go_on_here_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["batch", "run", "--tasks", "op.py", "--models", MODEL, "--detach"]) == 0
    assert run(["batch", "cancel", "1"]) == 0
    capsys.readouterr()
    assert run(["batch", "resume", "1"]) == 3
    assert "no key is set. Set OPENAI_API_KEY." in capsys.readouterr().err
    with opened_store(load_settings()) as store:
        assert get_job(store, 1).status is JobStatus.CANCELLED
    assert run(["batch", "resume", "1", "--detach"]) == 0, "a worker may have one"


@pytest.mark.parametrize("kind", ["jobs", "models"])
def test_what_stopped_is_left_as_it_is_if_there_is_no_key_to_go_on_with(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened_store(load_settings()) as store:
        made = Seeded(store)
        if kind == "jobs":
            number = made.start("one", model=MODEL, device="a processor")
            made.end(number, JobStatus.INTERRUPTED, "interrupted")
        else:
            number = model_run(made, "one", model=MODEL)
            end_model(made, "one", JobStatus.INTERRUPTED, "optimize")
        before = get_job(store, number)
        assert run([kind, "resume", str(number)]) == 3
        assert "no key is set. Set OPENAI_API_KEY." in capsys.readouterr().err
        assert get_job(store, number) == before

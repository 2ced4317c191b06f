"""docs/operating.md and compose.yaml name settings, commands, metrics, files and limits that there are."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from db.store import Store
from service.cli.app import build_app
from service.logs import REPEATED_S
from service.settings import PREFIX, Settings, load_settings
from service.worker import main, remeasure
from service.worker.context import JOBS_AT_ONCE, MODELS_AT_ONCE
from service.worker.queue import queue_url
from service.worker.reconcile import HEARTBEAT_S, LOST_AFTER_S
from tests.support.doc_tables import quantities, table
from web import cli, server
from web.metrics import COUNT_INTERVAL_S, Metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operating.md").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
COMMANDS = sorted(
    {
        line.strip()
        for found in re.findall(r"kernelwright((?: (?:[a-z-]+|\d+|--[a-z-]+|'[^']*'))+)", PAGE)
        for line in [found]
        if re.match(r" (serve|worker|doctor|platforms|db|sandbox|tokens|jobs) ?", found)
    }
    | {line.strip() for line in re.findall(r"run --rm (?:server|worker)((?: [a-z]+|  ?--[a-z-]+ [a-z]+)+)", PAGE)}
)


def test_so_many_jobs_run_at_once_as_the_page_says():
    said = " ".join(PAGE.split())
    assert f"A worker runs {JOBS_AT_ONCE} jobs concurrently" in said
    assert f"beside them {MODELS_AT_ONCE} runs over whole models" in said


def test_repeated_warnings_are_counted_for_as_long_as_the_page_says():
    assert f"the same as one of the last {REPEATED_S:.0f} s" in " ".join(PAGE.split())


def test_the_commands_are_found():
    assert len(COMMANDS) >= 10, COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_with_its_options_is_there(line):
    app = build_app()
    cli.add_to(app)
    words = line.split()
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", {}), f"{line}: no such command"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_variable_is_a_setting_or_one_of_the_compose_file():
    of_compose = set(re.findall(rf"\$\{{{PREFIX}(\w+?):-", COMPOSE))
    settings = {name.upper() for name in Settings.model_fields}
    assert set(re.findall(rf"{PREFIX}(\w+)", PAGE)) <= settings | of_compose
    assert set(re.findall(rf"^ +{PREFIX}(\w+):", COMPOSE, re.MULTILINE)) <= settings
    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    defaults = dict(re.findall(rf"\$\{{{PREFIX}(\w+?):-([^}}]*)\}}", COMPOSE))
    assert documented == defaults


def test_every_metric_is_one_of_the_servers(store: Store):
    text = Metrics(store, lambda: 0).text().decode()
    known = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    named = set(re.findall(r"`?(kernelwright_\w+)", PAGE))
    assert len(named) >= 8
    assert {re.sub(r"_(bucket)$", "", name) for name in named} <= known


def test_labels_in_the_alerts_are_those_of_the_metrics(store: Store):
    metrics = Metrics(store, lambda: 0)
    metrics.count_request("GET", "/x", 500, 0.1)
    text = metrics.text().decode()
    assert 'kernelwright_jobs{status="failed"}' in text
    assert re.search(r'kernelwright_http_requests_total\{[^}]*status="500"', text)
    assert re.search(r'kernelwright_http_request_seconds_bucket\{[^}]*route="/x"', text)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    (unit,) = re.findall(r"```ini\n(# /etc/systemd/system/.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "kernelwright-worker@.service"
    path.write_text(unit.replace("ExecStart=/opt/kernelwright/bin/kernelwright", "ExecStart=/bin/true"))
    # Whether Docker is installed by systemd here is not the question.
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    command = ["systemd-analyze", "verify", "--man=no", str(path)]
    environment = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_times_are_those_of_the_code():
    assert "15 s after its last heartbeat" in PAGE and HEARTBEAT_S < LOST_AFTER_S == 15
    assert COUNT_INTERVAL_S == 15  # "at most 15 s old"
    assert main.END_S <= 15 and server.SHUTDOWN_TIMEOUT_S <= 15  # "within 15 s"


def test_the_table_of_measuring_again_is_the_codes():
    shown = {name: quantities(cells[0]) for name, cells in table(PAGE, "name in `service/worker/remeasure.py`").items()}
    assert shown == {name: [value] for name, value in vars(remeasure).items() if isinstance(value, int | float)}


def test_the_queue_is_where_the_page_says_it_is():
    assert queue_url(load_settings()).endswith("/kernelwright-queue.db")


def test_files_that_the_page_names_are_there():
    for name in re.findall(r"\b(?:CHANGELOG\.md|constraints\.txt|compose\.yaml|docs/[\w.-]+\.md)", PAGE):
        assert (ROOT / name).is_file(), name


def test_the_units_of_systemd_and_compose_stop_later_than_a_worker_needs():
    assert int(re.findall(r"TimeoutStopSec=(\d+)", PAGE)[0]) > main.END_S
    grace = [int(each) for each in re.findall(r"stop_grace_period: (\d+)s", COMPOSE)]
    assert len(grace) == 3 and min(grace) > main.END_S


def test_the_image_holds_the_packages_of_the_wheel_and_listens_as_compose_publishes_it():
    ignored = (ROOT / ".dockerignore").read_text().split()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {f"!{package}" for package in wheel["packages"]} <= set(ignored)
    assert re.search(r'command: \[serve, .*--port, "8765", --no-worker', COMPOSE)
    assert ':8765"]' in COMPOSE

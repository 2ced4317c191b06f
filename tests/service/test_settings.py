"""Settings come from options, then the environment, then `.env`, then defaults; bad ones are refused in one line."""

import http.server
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.protocols import Message, ModelUnavailable
from evaluator.platforms import load_platform
from evaluator.referee.evaluate import Evaluation
from evaluator.referee.platforms.load import load_platform as load_referee_platform
from evaluator.referee.pool.runner_pool import Request
from service.cancellation import CancelToken
from service.errors import BadRequest
from service.evaluation_context import EvaluationContext, open_models
from service.settings import environment_secrets, load_settings, override
from tasks.task import Task

TASK = Task("op", "class Model: ...")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("DATA_DIR", "DATABASE_URL", "MODEL", "ROUNDS", "SANDBOX", "API_BASE"):
        monkeypatch.delenv(f"KERNELWRIGHT_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)


def test_without_anything_the_built_in_model_and_the_users_data_folder_are_used(tmp_path):
    settings = load_settings()
    assert settings.model == "builtin/compiler"
    assert settings.data_dir == tmp_path / "xdg/kernelwright"
    assert settings.store_url == f"sqlite:///{tmp_path}/xdg/kernelwright/kernelwright.db"


@pytest.mark.parametrize("xdg", ["", "relative/is/invalid"])
def test_without_a_valid_xdg_folder_it_is_the_home(monkeypatch, xdg):
    monkeypatch.setenv("XDG_DATA_HOME", xdg)
    assert load_settings().data_dir == Path.home() / ".local/share/kernelwright"


def test_options_win_over_the_environment_and_that_over_dot_env(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text("KERNELWRIGHT_MODEL=from/file\nKERNELWRIGHT_ROUNDS=3\nOTHER=x\n")
    assert (load_settings().model, load_settings().rounds) == ("from/file", 3)
    monkeypatch.setenv("KERNELWRIGHT_MODEL", "from/environment")
    assert load_settings().model == "from/environment"
    assert load_settings(model="from/option").model == "from/option"
    assert load_settings(model=None).model == "from/environment"


def test_an_empty_variable_is_no_value(monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_ROUNDS", "")
    assert load_settings().rounds > 0


def test_a_tilde_and_a_relative_folder_are_made_absolute(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", "~/kw")
    assert load_settings().data_dir == Path.home() / "kw"
    monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", "here")
    assert load_settings().data_dir == tmp_path / "here"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"rounds": 0}, r"--rounds 0: .*greater than"),
        ({"budget_usd": -1.0}, r"--budget-usd -1.0: "),
        ({"budget_usd": float("nan")}, r"--budget-usd nan: "),
        ({"sandbox": "chroot"}, r"--sandbox chroot: .*'docker' or 'process'"),
        ({"model": ""}, r"--model : "),
        ({"roofline_target": 1.5}, r"--roofline-target 1.5: "),
    ],
)
def test_a_bad_option_is_named(options, line):
    with pytest.raises(BadRequest, match=line) as caught:
        load_settings(**options)
    assert "\n" not in str(caught.value)


def test_a_bad_variable_is_named(monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_ROUNDS", "many")
    with pytest.raises(BadRequest, match="KERNELWRIGHT_ROUNDS=many: "):
        load_settings()


def test_a_dot_env_that_is_not_text_is_named(tmp_path):
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    with pytest.raises(BadRequest, match=r"\.env"):
        load_settings()


def test_the_databases_password_is_not_shown(monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_DATABASE_URL", "postgresql://user:secret@host/db")
    settings = load_settings()
    assert "secret" not in repr(settings)
    assert settings.store_url.endswith("secret@host/db")


@pytest.mark.parametrize(
    "address",
    [
        "http://me:hunter2@host/v1",
        "https://hunter2@host:8000/v1",
        "me:hunter2@host",
        "//me:hunter2@host",
        "http://me:hunter2/@host/v1",
        "http://me:hunter2?#@host/v1",
        "http://me:hunter2@[::1]:8000/v1",
    ],
)
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_key_in_the_address_is_refused_and_not_repeated(monkeypatch, address, by_variable):
    if by_variable:
        monkeypatch.setenv("KERNELWRIGHT_API_BASE", address)
    with pytest.raises(BadRequest, match=r"API_BASE=|--api-base") as caught:
        load_settings(**({} if by_variable else {"api_base": address}))
    error = caught.value
    assert "put the key into the provider's variable" in str(error) and "\n" not in str(error)
    assert "hunter2" not in f"{error} {error!r} {error.__cause__} {error.__context__}"


@pytest.mark.parametrize("address", ["http://host/v1", "http://[::1]:8000/v1", "https://host/@me/v1", "localhost:8000"])
def test_an_address_without_one_is_kept(address):
    assert load_settings(api_base=address).api_base == address


def test_secrets_are_known_by_the_names_of_their_variables(monkeypatch):
    named = {"A_API_KEY": "aaaaaa1", "B_TOKEN": "bbbbbb1", "C_SECRET": "cccccc1", "my_private_key": "dddddd1"}
    others = {"E_KEY": "short", "KEYBOARD": "eeeeee1", "F_TOKENS": "ffffff1"}
    for name, value in {**named, **others}.items():
        monkeypatch.setenv(name, value)
    assert set(named.values()) <= set(environment_secrets())
    assert not set(others.values()) & set(environment_secrets())


def test_a_key_that_a_server_echoes_is_not_shown(monkeypatch, tmp_path):
    key = "Zyxw98Vuts76Rqpo54"  # looks like no key of any provider

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"error": {"message": "who is ' + self.headers["Authorization"].split()[-1].encode() + b'?"}}'
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("OPENAI_API_KEY", key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        settings = load_settings(api_base=f"http://127.0.0.1:{server.server_address[1]}/v1", lock_dir=tmp_path)
        context = SimpleNamespace(
            sandbox=SimpleNamespace(name="none", promises=frozenset()), locks=(tmp_path / "lock",)
        )
        models = open_models(settings, context, on_progress=lambda text: None, cancel=CancelToken())
        with pytest.raises(ModelUnavailable, match=r"who is \[removed\]\?") as caught:
            models.complete("openai/x", [Message("user", "hello")], should_stop=lambda: False)
        assert key not in str(caught.value)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


URL = "postgresql+psycopg://kernelwright@db:5432/kernelwright"


def test_the_databases_password_may_come_from_a_file_and_is_quoted_as_urls_need_it(tmp_path):
    file = tmp_path / "password"
    file.write_text("pass/word@1\n")
    settings = load_settings(database_url=URL, database_password_file=file)
    assert settings.store_url == "postgresql+psycopg://kernelwright:pass%2Fword%401@db:5432/kernelwright"
    assert "pass/word" not in repr(settings)


@pytest.mark.parametrize(
    ("content", "url", "said"),
    [
        (None, URL, "cannot be read"),
        (b"", URL, "must hold a password and nothing else"),
        (b"two words", URL, "must hold a password and nothing else"),
        (b"\xff\xfe", URL, "is not UTF-8"),
        (b"secret-1", URL.replace("kernelwright@", "kernelwright:secret-2@"), "a password of its own"),
        (b"secret-1", "sqlite:////tmp/x.db", "no server"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_refused_and_nothing_of_it_is_shown(tmp_path, content, url, said):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadRequest, match=said) as refused:
        _ = load_settings(database_url=url, database_password_file=file).store_url
    assert "KERNELWRIGHT_DATABASE_PASSWORD_FILE=" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_values_are_overridden_without_asking_the_environment_again(monkeypatch):
    settings = load_settings(rounds=3, model="openai/x")
    monkeypatch.setenv("KERNELWRIGHT_ROUNDS", "9")
    monkeypatch.setenv("KERNELWRIGHT_SEED", "nonsense")
    changed = override(settings, budget_usd=2.5, model=None)
    assert (changed.rounds, changed.budget_usd, changed.model, changed.seed) == (3, 2.5, "openai/x", None)
    assert changed.data_dir == settings.data_dir


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds 0: input should be greater"),
        ({"budget_usd": float("inf")}, "budget_usd inf"),
        ({"price": "cheap"}, "price cheap: give dollars"),
        ({"nothing": 1}, "nothing: there is no such option"),
        ({"api_base": "http://me:hunter2@host"}, "api_base ...: an address with a name"),
    ],
)
def test_what_overrides_is_checked_as_what_is_loaded(options, words):
    with pytest.raises(BadRequest) as caught:
        override(load_settings(), **options)
    assert str(caught.value).startswith(words)


def test_what_is_measured_how_long_and_how_precisely_arrives_at_the_referee(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "33")
    monkeypatch.setenv("KERNELWRIGHT_PRECISION", "0.05")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    context = EvaluationContext(
        TASK, load_platform("cpu"), SimpleNamespace(), load_settings(data_dir=tmp_path, lock_dir=tmp_path)
    )
    request = Request.from_json({"platform": "cpu", **json.loads(json.dumps(context.effort.request(TASK, "")))})
    assert request.baselines == ("eager",)
    platform = load_referee_platform(request.platform, request.device)
    plan = Evaluation(SimpleNamespace(request=request, platform=platform)).plan
    assert (plan.budget_s, plan.precision) == (33.0, 0.05)
    assert (plan.wanted_width(1.0), plan.wanted_width(3.0)) == (0.025, 0.05)


@pytest.mark.parametrize("precision", ["0.001", "2", "narrow"])
def test_a_precision_that_no_interval_can_have_is_refused(monkeypatch, precision):
    monkeypatch.setenv("KERNELWRIGHT_PRECISION", precision)
    with pytest.raises(BadRequest, match=r"(?i)precision"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("eager", "eager"),
        ("compile, eager,compile", "eager,compile"),
        ("openvino,eager,onnxruntime", "eager,onnxruntime,openvino"),
        ("compile-max-autotune,eager", "eager,compile-max-autotune"),
    ],
)
def test_baselines_stand_in_one_order_each_once(monkeypatch, given, kept):
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", given)
    assert load_settings().baselines == kept


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("eager,fast", "'fast' is no baseline; there is: eager, compile, compile-max-autotune, onnxruntime, openvino"),
        (",", "'' is no baseline; there is: eager"),
        ("compile,onnxruntime", "eager must be among them"),
    ],
)
def test_other_baselines_are_refused_with_what_may_be_given(monkeypatch, given, words):
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", given)
    with pytest.raises(BadRequest, match=rf"KERNELWRIGHT_BASELINES=.*{words}"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("sm_90a", "sm_90a"),
        ("sm_120, sm_80,sm_120", "sm_120,sm_80"),
        ("sm_103f", "sm_103f"),
        ("gfx90a,gfx1100", "gfx90a,gfx1100"),
    ],
)
def test_kernels_for_gpus_are_compiled_for_the_architectures_that_are_named(monkeypatch, given, kept):
    monkeypatch.setenv("KERNELWRIGHT_ARCHITECTURES", given)
    assert load_settings().architectures == kept


@pytest.mark.parametrize("given", [",", "sm_90a,", "hopper", "sm_9", "compute_90", "sm_90a --version"])
def test_what_is_no_architecture_is_refused_with_what_one_looks_like(monkeypatch, given):
    monkeypatch.setenv("KERNELWRIGHT_ARCHITECTURES", given)
    with pytest.raises(BadRequest, match=r"KERNELWRIGHT_ARCHITECTURES=.*give names such as sm_80,sm_90a"):
        load_settings()

"""Settings come from options, then the environment, then `.env`, then defaults; bad ones are refused in one line."""

from pathlib import Path

import pytest

from service.errors import BadRequest
from service.settings import load_settings


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("DATA_DIR", "DATABASE_URL", "MODEL", "ROUNDS", "SANDBOX"):
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

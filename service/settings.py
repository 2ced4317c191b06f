"""The settings. No other module reads the environment (prefix KERNELWRIGHT_) and `.env`."""

import os
import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from evaluator.referee.protocol.baselines import BASELINES, EAGER, USUAL
from evaluator.referee.protocol.gpu_checks import ARCHITECTURES, is_architecture
from service.errors import BadRequest, KeyUnreadable

PREFIX = "KERNELWRIGHT_"
BASELINE_NAMES = tuple(BASELINES)
MAX_KEY_BYTES = 16 * 1024
MEASURE_S_MAX = 600
MIN_SECRET_CHARS = 6  # shorter values are words that may occur in any text

_PRICES = re.compile(r"\d+(\.\d+)?,\d+(\.\d+)?")
_SECRET_ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_KEY")
_MAY_HOLD_SECRETS = frozenset({"database_url", "api_base", "server", "token"})


class Settings(BaseSettings):
    """The options that apply to all commands. Money is in US dollars."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    data_dir: Path = Field(default_factory=lambda: user_data_dir() / "kernelwright")
    database_url: SecretStr | None = None
    database_password_file: Path | None = None  # holds the URL's password if the URL itself has none
    lock_dir: Path = Path("/tmp")  # noqa: S108  # one folder for all users of a host, because they share its devices
    platform: str = "cpu"
    device: int = Field(0, ge=0, le=1023)  # the number of one of the host's devices of the platform
    model: str = Field("builtin/compiler", min_length=1, max_length=200)
    judge_model: str | None = Field(None, min_length=1, max_length=200)
    strategy: str = "judge"
    rounds: int = Field(6, ge=1, le=1000)
    seed: Literal["compiler"] | None = None
    budget_usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    budget_tokens: int | None = Field(None, ge=0)
    budget_s: float | None = Field(None, ge=0, allow_inf_nan=False)
    budget_evaluations: int | None = Field(None, ge=0)
    price: str | None = None  # dollars for a million tokens: of the prompt, of the reply
    plateau_rounds: int = Field(4, ge=0, le=1000)
    roofline_target: float = Field(0.95, gt=0, le=1)
    memory: Literal["off", "similar", "all"] = "similar"  # what single jobs are told of earlier ones
    sandbox: Literal["docker", "process"] | None = None
    image: str | None = None
    api_base: str | None = None
    api_key_file: Path | None = None
    memory_mb: int = Field(8192, ge=1024, le=16 * 1024 * 1024)  # of one evaluation's sandbox
    measure_s: float = Field(
        20.0, ge=0.1, le=MEASURE_S_MAX
    )  # for the timed calls of one evaluation; more narrows the intervals
    precision: float = Field(0.2, ge=0.01, le=1)  # timing stops early at a speedup's interval of this share of it
    baselines: str = ",".join(USUAL)  # by commas: what kernels are timed against
    architectures: str = ",".join(ARCHITECTURES)  # by commas: what kernels for GPUs are compiled for
    models: str = ""  # patterns of models, by commas, that submitters may use beside `model` and builtin/compiler
    weights_mb: int = Field(4096, ge=0, le=1024 * 1024)  # of one user's models, that a server keeps for jobs
    requests_a_minute: int = Field(600, ge=0, le=1_000_000)  # for one token; 0 means no limit
    server: str | None = None  # the server that commands work through
    token: SecretStr | None = None  # the token for that server

    @field_validator("api_base", "server")
    @classmethod
    def _without_userinfo(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Refuse an address with a name or password in it, because addresses are stored and shown."""
        if value is not None and _has_userinfo(value):
            where = "the provider's variable, such as OPENAI_API_KEY"
            where = "KERNELWRIGHT_TOKEN" if info.field_name == "server" else where
            raise ValueError(
                f"an address with a name or password in it would be stored and shown; put the key into {where}"
            )
        return value

    @field_validator("price")
    @classmethod
    def _two_prices(cls, value: str | None) -> str | None:
        if value is not None and not _PRICES.fullmatch(value):
            raise ValueError("give dollars for a million tokens as PROMPT,REPLY, such as 0.5,1.5")
        return value

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if wrong := [name for name in names if name not in BASELINES]:
            raise ValueError(f"{wrong[0][:40]!r} is no baseline; there is: {', '.join(BASELINES)}")
        if EAGER not in names:
            raise ValueError("eager must be among them, because candidates are checked against it in timed calls")
        return ",".join(name for name in BASELINES if name in names)

    @field_validator("architectures")
    @classmethod
    def _names_of_architectures(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if wrong := [name for name in names if not is_architecture(name)]:
            raise ValueError(f"{wrong[0][:40]!r} is no architecture; give names such as sm_80,sm_90a or gfx90a")
        return ",".join(dict.fromkeys(names))

    @property
    def store_url(self) -> str:
        """The database's URL with its password. The default is an SQLite file in the data folder.

        Raises:
            BadRequest: the password's file cannot be read, or the URL cannot take a password.
        """
        if self.database_url is None:
            return f"sqlite:///{self.data_dir / 'kernelwright.db'}"
        url = self.database_url.get_secret_value()
        return url if self.database_password_file is None else _with_password(url, self.database_password_file)

    def job_dir(self, job_id: int) -> Path:
        """The folder of a job's files, unless the user names another place."""
        return self.data_dir / "jobs" / str(job_id)


class _GivenOnly(Settings):
    """Settings that do not read the environment, to check single values."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the values that are given. This is a hook of pydantic-settings."""
        return (init_settings,)


def load_settings(**options: object) -> Settings:
    """Read the settings from the environment and `.env`. Given `options` that are not None take precedence.

    Raises:
        BadRequest: a value is not valid. The message names the option or the variable, and the value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]  # pydantic checks the values
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise _refused(
            error, f"--{name.replace('_', '-')} " if name in given else f"{PREFIX}{name.upper()}="
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f".env: cannot be read ({error}); correct or remove it") from error
    return settings.model_copy(update={"data_dir": settings.data_dir.expanduser().absolute()})


def override(settings: Settings, **options: object) -> Settings:
    """`settings` with other values for the given `options` that are not None. The environment is not read.

    Raises:
        BadRequest: a value is not valid. The message names the option and the value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(given.keys() - Settings.model_fields.keys()):
        raise BadRequest(f"{unknown[0][:80]}: there is no such option")
    try:
        checked = _GivenOnly(**given)  # type: ignore[arg-type]  # pydantic checks the values
    except ValidationError as error:
        raise _refused(error, f"{error.errors()[0]['loc'][0]} ") from error
    return settings.model_copy(update={name: getattr(checked, name) for name in given})


def _refused(error: ValidationError, origin: str) -> BadRequest:
    first = error.errors()[0]
    value = "..." if str(first["loc"][0]) in _MAY_HOLD_SECRETS else str(first["input"])[:80]
    said = first["msg"].removeprefix("Value error, ")
    return BadRequest(f"{origin}{value}: {said[:1].lower()}{said[1:]}")


def user_data_dir() -> Path:
    """The user's folder for data: XDG_DATA_HOME, or ~/.local/share."""
    chosen = os.environ.get("XDG_DATA_HOME", "")
    return Path(chosen) if chosen.startswith("/") else Path.home() / ".local" / "share"


def read_key(path: Path) -> str:
    """Read a key from a file that holds nothing else.

    Raises:
        KeyUnreadable: the file cannot be read, or does not hold one word.
    """
    try:
        return _only_word(path, f"--api-key-file {path}", "a key")
    except BadRequest as error:
        raise KeyUnreadable(str(error)) from error


def _with_password(url: str, file: Path) -> str:
    from sqlalchemy.engine import make_url  # slow to import, and seldom needed
    from sqlalchemy.exc import ArgumentError

    origin = f"{PREFIX}DATABASE_PASSWORD_FILE={file}"
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url  # opening the store reports what is wrong with the URL
    if parsed.host is None or parsed.password is not None:
        raise BadRequest(f"{origin}: {PREFIX}DATABASE_URL has a password of its own or no server; set one of the two")
    return parsed.set(password=_only_word(file, origin, "a password")).render_as_string(hide_password=False)


def _only_word(path: Path, origin: str, what: str) -> str:
    try:
        with path.expanduser().open("rb") as file:
            words = file.read(MAX_KEY_BYTES + 1).decode("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise BadRequest(f"{origin}: cannot be read ({reason})") from error
    if len(words) != 1 or len(words[0]) > MAX_KEY_BYTES:
        raise BadRequest(f"{origin}: must hold {what} and nothing else")
    return words[0]


def environment_secrets() -> tuple[str, ...]:
    """The values of variables whose names are those of keys and tokens. No text may show them."""
    return tuple(
        value
        for name, value in os.environ.items()
        if name.upper().endswith(_SECRET_ENDINGS) and len(value) >= MIN_SECRET_CHARS
    )


def _has_userinfo(address: str) -> bool:
    """Whether an address holds `user:password@`, also if the password makes it invalid (`http://me:a/b@host`)."""
    authority = re.split(r"[/?#\\]", address.partition("//")[2] or address, maxsplit=1)[0]
    port = authority.rpartition("]")[2].partition(":")[2]
    return "@" in authority or ("@" in address and port != "" and not port.isdecimal())

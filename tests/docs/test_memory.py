"""docs/memory.md says what the code does: modes, defaults and numbers."""

from pathlib import Path

from agents.lessons import AGREE, MIN_GAIN, MIN_JOBS
from agents.memory import MAX_KERNEL_CHARS, MAX_KERNELS, MAX_LESSONS, MemoryMode
from db.evaluations.proven import MAX_JUDGED, MAX_RANKED
from evaluator.platforms import PLATFORM_NAMES
from service.batches.spec import make_spec, settings_for
from service.jobs.memory import MIN_LIKENESS, OTHER_DEVICE
from service.jobs.spec import prompts_of
from service.settings import load_settings
from tasks.likeness import HALF_AT_LOG2, OTHER_DTYPE
from tests.support.doc_tables import table

PAGE = " ".join((Path(__file__).parents[2] / "docs/memory.md").read_text().split())


def test_the_table_of_modes_is_the_codes() -> None:
    text = (Path(__file__).parents[2] / "docs/memory.md").read_text()
    assert list(table(text, "`--memory`")) == [mode.value for mode in MemoryMode]


def test_defaults_are_those_of_the_page() -> None:
    settings = load_settings()
    assert settings.memory == "similar"
    spec = make_spec({"tasks": ["starter"]})
    assert settings_for(spec, spec.choices[0], "cpu", load_settings(memory="all")).memory == "off"
    asked = make_spec({"tasks": ["starter"], "job": {"memory": "similar"}})
    assert settings_for(asked, asked.choices[0], "cpu", settings).memory == "similar"


def test_numbers_are_those_of_the_code() -> None:
    for said in (
        f"at most {MAX_KERNELS} of them",
        f"at most {MAX_LESSONS}.",
        f"{OTHER_DTYPE} if the dtypes differ",
        f"input sizes| / {HALF_AT_LOG2:g})",
        f"{OTHER_DEVICE} where the kernel was measured on another device",
        f"below {MIN_LIKENESS} are not similar",
        f"at most {MAX_KERNEL_CHARS:,} characters",
        f"newest {MAX_JUDGED:,} evaluations",
        f"newest {MAX_RANKED:,} entries",
        f"Effects below {MIN_GAIN - 1:.0%} count as none".replace("%", " %"),
    ):
        assert said in PAGE, said
    assert MIN_JOBS == 2 and "A lesson needs two jobs" in PAGE
    assert AGREE == 2 / 3 and "two thirds of its jobs must agree" in PAGE


def test_each_platform_with_a_compiler_names_features() -> None:
    assert {name for name in PLATFORM_NAMES if not prompts_of(name).features} == {"simulated"}

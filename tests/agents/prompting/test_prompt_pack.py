"""A platform's prompts are read from a folder of texts."""

from pathlib import Path

import pytest

from agents.history import EvaluatedCandidate
from agents.job import SEEDS
from agents.prompting.builder import coder_messages, judge_messages, tools_messages, write_brief
from agents.prompting.prompt_pack import Exemplar, PromptPack, read_prompt_pack
from agents.prompting.sections import parse
from agents.protocols import Outcome
from evaluator.platforms import PLATFORM_NAMES
from service.jobs.spec import prompts_of
from tasks.outcomes import candidate_hash
from tasks.source_kernel import SourceKernel, constant_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "exemplars").mkdir()
    (tmp_path / "rules.md").write_text("Write it well.\n")
    (tmp_path / "categories.md").write_text("## math, reduce\nAdd in pairs.\n\n## scan\nCarry over.\n")
    (tmp_path / "exemplars" / "math_task.py").write_text("class Model: ...\n")
    (tmp_path / "exemplars" / "math.py").write_text("class ModelNew: ...\n")
    return tmp_path


def brief(category: str, pack: PromptPack) -> tuple[str, str]:
    written = write_brief(task_id="a/b", source="", category=category, dtype="float32", device="", prompts=pack)
    return written.platform, written.exemplar


def test_the_brief_has_rules_the_categorys_hint_and_its_exemplar(folder: Path) -> None:
    pack = read_prompt_pack(folder, default_category="math", seeds=("compiler",))
    assert pack.seeds == ("compiler",)
    assert pack.exemplar("scan") == Exemplar("class Model: ...\n", "class ModelNew: ...")
    rules, exemplar = brief("scan", pack)
    assert rules == "Write it well.\n\nFor scan ops\n- Carry over."
    assert exemplar.endswith("class Model: ...\n\n# A correct and fast answer to it\nclass ModelNew: ...")
    assert brief("reduce", pack)[0].endswith("- Add in pairs.")
    assert brief("other", pack)[0] == "Write it well."


GATHER = """
import torch
class Model(torch.nn.Module):
    def forward(self, table, index):
        return torch.tanh({expression})
def get_inputs():
    return [torch.randn(8, 8).cumsum(0), torch.zeros(8, dtype=torch.long)]
"""


@pytest.mark.parametrize(
    ("expression", "category"),
    [
        ("table.gather(0, index)", "index"),
        ("table[index].sum(-1)", "index"),
        ("torch.scatter_add(table, 0, index, table)", "index"),
        ("table @ table.T", "matmul"),
        ("torch.softmax(torch.bmm(table, table), -1)", "attention"),
        ("torch.cumsum(table, 0)", "scan"),
        ("torch.nn.LayerNorm(8)(table)", "normalization"),
        ("torch.nn.functional.interpolate(table)", "resize"),
        ("torch.nn.functional.pad(table, (1, 1))", "pooling"),
        ("torch.stack((table, -table))", "math"),
        ("table", "activation"),
    ],
)
def test_an_op_of_no_category_gets_the_example_of_its_operators(expression: str, category: str) -> None:
    pack = prompts_of("cpu")
    source = GATHER.format(expression=expression)
    written = write_brief(task_id="a/b", source=source, category="other", dtype="float32", device="", prompts=pack)
    assert pack.exemplars[category].candidate in written.exemplar
    assert f"For other ops\n- {pack.hints['other']}" in written.platform
    assert written.platform.endswith(f"For {category} ops\n- {pack.hints[category]}")
    assert "Operators:" not in written.platform


@pytest.mark.parametrize("source", ["", "class Model(: pass", "x = 1", "(" * 5000])
def test_an_op_that_says_nothing_gets_the_default_example(source: str) -> None:
    pack = prompts_of("cpu")
    written = write_brief(task_id="a/b", source=source, category="other", dtype="float32", device="", prompts=pack)
    assert pack.exemplars[pack.default_category].candidate in written.exemplar
    assert written.platform.endswith(pack.hints["other"])


def test_a_category_of_ones_own_counts_before_operators() -> None:
    assert prompts_of("cpu").category_for("pooling", GATHER.format(expression="table.gather(0, index)")) == "pooling"


def test_each_operator_belongs_to_a_category_with_an_exemplar() -> None:
    pack = prompts_of("cpu")
    assert len(pack.operators) > 80
    assert {name for names in pack.operators.values() for name in names} <= set(pack.exemplars) & set(pack.hints)


def test_hints_may_be_absent(folder: Path) -> None:
    (folder / "categories.md").unlink()
    assert brief("math", read_prompt_pack(folder, default_category="math"))[0] == "Write it well."


def test_the_default_category_needs_an_exemplar(folder: Path) -> None:
    with pytest.raises(ValueError, match="default category 'scan' has no exemplar; has \\['math'\\]"):
        read_prompt_pack(folder, default_category="scan")


def test_an_exemplar_needs_its_candidate(folder: Path) -> None:
    (folder / "exemplars" / "math.py").unlink()
    with pytest.raises(FileNotFoundError, match=r"math\.py"):
        read_prompt_pack(folder, default_category="math")


@pytest.mark.parametrize("name", PLATFORM_NAMES)
def test_each_platforms_seeds_are_known(name: str) -> None:
    assert set(prompts_of(name).seeds) <= set(SEEDS)


KERNEL = SourceKernel("cuda", "__global__ void k();", entry="k", notes="two loads a thread")


def translation(prompts: PromptPack, language: str = "CUDA C++") -> dict[str, str]:
    return dict(
        write_brief(
            task_id="a/b",
            source=f"import torch\nclass Model: ...\n{constant_text(KERNEL)}",
            category="other",
            dtype="float32",
            device="",
            prompts=prompts,
            source_language=language,
        ).sources
    )


def test_how_a_kernel_is_translated_is_said_for_the_platform_that_it_comes_from(folder: Path) -> None:
    (folder / "sources.md").write_text("## triton, cuda\nA block is a loop.\n\n## opencl\nA group is a loop.\n")
    pack = read_prompt_pack(folder, default_category="math")
    assert translation(pack) == {
        "source_kernel": "Entry: k\nNotes: two loads a thread\n__global__ void k();",
        "translation": "`<source_kernel>` is in the language of platform cuda: CUDA C++.\nA block is a loop.",
    }


def test_where_nothing_is_said_the_form_of_the_platform_decides(folder: Path) -> None:
    pack = read_prompt_pack(folder, default_category="math")
    assert translation(pack)["translation"].endswith("give it the form that `<platform>` asks for.")


@pytest.mark.parametrize("brings", [True, False])
def test_coder_and_judge_are_told_what_the_sections_of_a_translation_are(folder: Path, brings: bool) -> None:
    pack = read_prompt_pack(folder, default_category="math")
    source = f"import torch\n{constant_text(KERNEL) if brings else ''}"
    made = write_brief(task_id="a/b", source=source, category="other", dtype="float32", device="", prompts=pack)
    wrong = EvaluatedCandidate("x = 1", Outcome(candidate_hash("x = 1"), "wrong_output"))
    prompts = (coder_messages(made, "write", None, []), judge_messages(made, wrong, []), tools_messages(made, None, 3))
    for system, user in prompts:
        assert ("This job translates a kernel." in system.content) == brings
        assert [name in parse(user.content) for name in ("source_kernel", "translation")] == [brings, brings]

"""Replies are hostile and sloppy: what is taken out of them, and what is refused."""

import ast
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prompting.parse import (
    MAX_CANDIDATE_BYTES,
    MAX_REPLY_CHARS,
    MAX_VARIANTS,
    Advice,
    ReplyError,
    Variant,
    candidate_problem,
    extract_advice,
    extract_candidate,
    extract_candidates,
)
from agents.prompting.sections import SECTIONS, parse, render, text_outside_sections

GOOD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
OTHER = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    x = 1\n"
FENCES_INSIDE = 'class ModelNew:\n    """Use it so:\n\n```python\nModelNew()\n```\n\nand so:\n\n```\nx\n```\n    """\n'
ADVICE = {"bottleneck": "memory", "evidence": ["36 GB/s"], "change": "fuse", "expected_speedup": 1.5, "stop": False}


def fence(body: str, language: str = "python", mark: str = "```") -> str:
    return f"{mark}{language}\n{body}{mark}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fence(GOOD),
        "Reasoning first.\n\n" + fence(GOOD) + "\nThat is all.",
        fence(GOOD, ""),
        fence(GOOD, "py"),
        fence(GOOD, "Python"),
        fence(GOOD, "python title=kernel.py"),
        fence(GOOD, mark="~~~"),
        fence(GOOD, mark="````"),
        fence(GOOD).replace("\n", "\r\n"),
        fence(GOOD).replace("\n", "\r"),
        "```python\n" + GOOD,  # never closed
        GOOD,  # no fence at all
        "\ufeff" + GOOD,
        fence("import os\n") + "not that one, this one:\n" + fence(GOOD),
        fence(OTHER) + "I see a mistake. Corrected:\n" + fence(GOOD),
        fence(GOOD) + "Build it with\n" + fence("g++ -O3 kernel.cpp\n", "bash"),
        fence(GOOD) + fence('{"a": 1}\n', "json"),
        fence("class ModelNew(:\n") + fence(GOOD),
        "1. Do this:\n\n   ```python\n" + "".join(f"   {line}\n" for line in GOOD.split("\n")) + "   ```\n",
    ],
)
def test_the_one_file_is_found(reply: str) -> None:
    assert extract_candidate(reply) == GOOD


def test_fences_inside_of_the_file_do_not_end_it() -> None:
    assert extract_candidate(fence(FENCES_INSIDE)) == FENCES_INSIDE
    assert extract_candidate("First:\n" + fence(FENCES_INSIDE) + "Done.\n") == FENCES_INSIDE


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "no closed ```python block"),
        ("I cannot do that.", "no closed ```python block"),
        (fence("def f():\n    return 1\n"), "no top-level class named ModelNew"),
        (fence("if True:\n    class ModelNew: pass\n"), "no top-level class named ModelNew"),
        (fence("class ModelNew(:\n"), "not valid Python: line 1"),
        (fence(GOOD + "\0"), "not valid Python"),
        (fence(GOOD + "# \ud800"), "UTF-8"),
        (fence(GOOD + "#" * MAX_CANDIDATE_BYTES), "bytes; at most"),
        (fence(GOOD + "#" + "ä" * (MAX_CANDIDATE_BYTES // 2)), "bytes; at most"),
        (fence(GOOD + "(" * 5000), "not valid Python"),
        (fence(GOOD + "x = " + "-" * 100_000 + "1"), "not valid Python"),
        ("x" * (MAX_REPLY_CHARS + 1), "characters; at most"),
    ],
)
def test_no_candidate_says_why(reply: str, why: str) -> None:
    with pytest.raises(ReplyError, match=why):
        extract_candidate(reply)


def test_cut_off_file_is_refused_even_if_what_is_left_parses() -> None:
    for reply in ("```python\n" + GOOD, GOOD):
        with pytest.raises(ReplyError, match="cut off"):
            extract_candidate(reply, truncated=True)
    assert extract_candidate(fence(GOOD) + "And now I expl", truncated=True) == GOOD


def variant(body: str, label: str = "") -> str:
    return fence(body, f"python variant{': ' + label if label else ''}")


def test_variants_are_found_in_order_with_what_sets_them_apart() -> None:
    reply = f"One idea.\n{variant(GOOD, 'blocks of  64')}and\n{fence(OTHER, 'py Variant 2 : blocks of 128')}Done."
    written = extract_candidates(reply)
    assert written.variants == (Variant(GOOD, "blocks of 64"), Variant(OTHER, "blocks of 128"))
    assert written.problem == ""
    assert extract_candidate(reply) == GOOD, "who wants one takes the first"


def test_a_variant_without_a_label_has_its_number() -> None:
    written = extract_candidates(variant(GOOD) + variant(OTHER, " "))
    assert [each.label for each in written.variants] == ["variant 1", "variant 2"]


def test_equal_variants_count_once_and_what_is_not_marked_does_not_count_beside_them() -> None:
    draft = fence(GOOD.replace("pass", "draft = 1"))
    written = extract_candidates(draft + variant(GOOD, "a") + variant(GOOD, "b") + variant(OTHER, "c") + draft)
    assert written.variants == (Variant(GOOD, "a"), Variant(OTHER, "c"))


@pytest.mark.parametrize(
    "info", ["python", "python variants: two", "python title=variant", "variant: a", "json variant"]
)
def test_blocks_that_are_not_marked_are_one_candidate_the_last(info: str) -> None:
    assert extract_candidates(fence(OTHER) + fence(OTHER, info) + fence(GOOD)).variants == (Variant(GOOD),)


def test_more_variants_than_are_judged_are_refused() -> None:
    files = [GOOD.replace("pass", f"x = {number}") for number in range(MAX_VARIANTS + 1)]
    assert len(extract_candidates("".join(map(variant, files[:-1]))).variants) == MAX_VARIANTS
    with pytest.raises(ReplyError, match=f"at most {MAX_VARIANTS}"):
        extract_candidates("".join(map(variant, files)))


def test_a_variant_that_is_no_candidate_is_left_out_and_told() -> None:
    written = extract_candidates(variant("class ModelNew(:\n") + variant(GOOD, "b"))
    assert written.variants == (Variant(GOOD, "b"),)
    assert "variant 1: the file is not valid Python" in written.problem
    cut = extract_candidates(variant(GOOD, "a") + "```python variant: b\n" + OTHER, truncated=True)
    assert cut.variants == (Variant(GOOD, "a"),)
    assert "variant 2: its block is not closed" in cut.problem and "cut off" in cut.problem
    with pytest.raises(ReplyError, match=r"variant 1: .*; variant 2: "):
        extract_candidates(variant("class ModelNew(:\n") + variant("x = 1\n"))


def test_a_variant_may_hold_fences_and_the_last_may_be_left_open() -> None:
    assert extract_candidates(variant(FENCES_INSIDE, "a") + "```python variant: b\n" + GOOD).variants == (
        Variant(FENCES_INSIDE, "a"),
        Variant(GOOD, "b"),
    )


@given(
    st.lists(
        st.sampled_from(["```", "```python", "```python variant: a", "~~~py variant", GOOD, OTHER, "prose", '"""'])
    ),
    st.booleans(),
)
def test_what_is_taken_as_variants_are_different_candidates(parts: list[str], truncated: bool) -> None:
    try:
        written = extract_candidates("\n".join(parts), truncated=truncated)
    except ReplyError as error:
        assert str(error)
        return
    sources = [each.source for each in written.variants]
    assert 1 <= len(set(sources)) == len(sources) <= MAX_VARIANTS
    assert all(candidate_problem(source) is None for source in sources)


def test_parsing_warns_nobody() -> None:
    assert candidate_problem(GOOD + '\nx = "\\d"\n') is None


def test_reply_of_fences_alone_takes_no_time() -> None:
    started = time.process_time()
    for line in ("```python\nclass ModelNew(\n", "```\n", "```python\n"):
        with pytest.raises(ReplyError):
            extract_candidate(line * (MAX_REPLY_CHARS // len(line)))
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "line", ["```" + " " * 2_000_000 + "`", "~" * 2_000_000 + "`", " " * 2_000_000 + "`", "`" * 2_000_000]
)
def test_line_that_is_almost_a_fence_takes_no_time(line: str) -> None:
    started = time.process_time()
    with pytest.raises(ReplyError):
        extract_candidate(line)
    assert time.process_time() - started < 5


@given(st.text())
def test_any_text_gives_a_candidate_or_a_reply_error(reply: str) -> None:
    try:
        source = extract_candidate(reply)
    except ReplyError as error:
        assert str(error)
    else:
        assert candidate_problem(source) is None


@given(
    st.lists(st.sampled_from(["```", "```python", "~~~", GOOD, OTHER, "prose", '"""', "```json", "    ", "\r"])),
    st.booleans(),
)
def test_what_is_taken_is_always_a_candidate(parts: list[str], truncated: bool) -> None:
    try:
        source = extract_candidate("\n".join(parts), truncated=truncated)
    except ReplyError:
        return
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(source).body)


@given(
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r\0`~\f\x1c\x1d\x1e\x85\u2028\u2029")
    )
)
def test_fenced_file_comes_back_unchanged(comment: str) -> None:
    source = GOOD + "".join(f"# {line}\n" for line in comment.split("\n"))
    assert extract_candidate(f"Here:\n\n```python\n{source}```\n\nDone.") == source.rstrip() + "\n"


@pytest.mark.parametrize(
    "reply",
    [
        fence(json.dumps(ADVICE) + "\n", "json"),
        fence(json.dumps(ADVICE, indent=2) + "\n", ""),
        json.dumps(ADVICE),
        "I think: " + json.dumps(ADVICE) + " and that is it.",
        "```json\n" + json.dumps(ADVICE),
        fence(json.dumps(ADVICE) + "\n", "json").replace("\n", "\r\n"),
        fence("[1, 2]\n", "json") + fence(json.dumps(ADVICE) + "\n", "json"),
        fence(json.dumps({**ADVICE, "confidence": "high"}) + "\n", "json"),
    ],
)
def test_advice_is_found(reply: str) -> None:
    assert extract_advice(reply) == Advice(
        bottleneck="memory", evidence=("36 GB/s",), change="fuse", expected_speedup=1.5, stop=False
    )


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "no JSON object"),
        ("It is slow.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"bottleneck": "x"', "cannot be read"),
        ('{"bottleneck": "x"}', "change: Field required"),
        (json.dumps({**ADVICE, "expected_speedup": "a lot"}), "expected_speedup"),
        (json.dumps({**ADVICE, "expected_speedup": -1}), "expected_speedup"),
        (json.dumps({**ADVICE, "expected_speedup": float("nan")}), "expected_speedup"),
        (json.dumps({**ADVICE, "evidence": "one string"}), "evidence"),
        (json.dumps({**ADVICE, "change": "x" * 10_000}), "change"),
        (json.dumps({**ADVICE, "stop": "perhaps"}), "stop"),
        ("[" * 100_000 + "{", "cannot be read|no JSON object"),
        ('{"a":' * 100_000, "cannot be read"),
    ],
)
def test_no_advice_says_why(reply: str, why: str) -> None:
    with pytest.raises(ReplyError, match=why):
        extract_advice(reply)


def test_advice_survives_json() -> None:
    advice = Advice.model_validate(ADVICE)
    assert Advice.model_validate(json.loads(json.dumps(advice.to_json()))) == advice


@given(st.text())
def test_any_text_gives_advice_or_a_reply_error(reply: str) -> None:
    with pytest.raises(ReplyError):
        extract_advice(reply)


BODIES = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.sampled_from(
            [
                "</reference>",
                "<candidate>",
                "<request>",
                "judge-improve",
                "\n",
                "<\\/reference>",
                "< / Advice >",
                "<\\\\",
                "x",
                "</REQUEST",
            ]
        )
    ).map("".join),
)


@given(st.dictionaries(st.sampled_from(SECTIONS), BODIES))
def test_sections_come_back_unchanged_whatever_they_hold(sections: dict[str, str]) -> None:
    assert parse("Do it.\n\n" + render(sections) + "\n\nNow.") == sections


@given(BODIES)
def test_no_body_closes_or_opens_a_section(body: str) -> None:
    text = render({"reference": body, "request": "write"}).lower()
    for name in SECTIONS:
        assert text.count(f"<{name}>") == text.count(f"</{name}>") == (name in ("reference", "request"))


@given(
    st.text("\\", max_size=3),
    st.text(" \t\n\r\f\v\u00a0\u2028", max_size=40),
    st.sampled_from(["", "/"]),
    st.text(" \t\n\u3000", max_size=40),
    st.sampled_from(SECTIONS),
    st.booleans(),
)
def test_no_odd_tag_gets_through(slashes: str, before: str, mark: str, after: str, name: str, upper: bool) -> None:
    tag = f"<{slashes}{before}{mark}{after}{name.upper() if upper else name}"
    text = render({"note": f"a {tag}> b"})
    assert f"<\\{tag[1:]}> b" in text
    assert parse(text) == {"note": f"a {tag}> b"}


def test_long_whitespace_in_a_tag_hides_it_from_nobody() -> None:
    tag = f"<{' ' * 30_000}/{chr(10) * 30_000}Candidate>"
    assert f"<\\{tag[1:]}" in render({"note": tag})
    assert parse(render({"note": tag})) == {"note": tag}


SLOW_SECTION = re.compile(rf"^<({'|'.join(SECTIONS)})>\n(.*?)\n</\1>$", re.MULTILINE | re.DOTALL)
TAGS = ["<note>", "</note>", "<best>", "</best>", "</best> ", "<task>", " <task>", "</task>", "x", "", "</note><note>"]


@given(st.lists(st.sampled_from(TAGS), max_size=12).map("\n".join))
def test_sections_are_what_the_plain_expression_says(text: str) -> None:
    expected: dict[str, str] = {}
    for name, body in SLOW_SECTION.findall(text):
        expected.setdefault(name, body)
    assert parse(text) == expected
    assert text_outside_sections(text) == SLOW_SECTION.sub("", text).strip()


@pytest.mark.parametrize(
    "body",
    [
        "# <" + " " * 2_000_000,
        "<" + " " * 1_000_000 + "/" + " " * 1_000_000,
        "<\\" * 700_000,
        "<" + "\\" * 2_000_000,
        "<" * 2_000_000,
        "< / " * 500_000,
    ],
)
def test_body_of_what_is_almost_a_tag_takes_no_time(body: str) -> None:
    started = time.process_time()
    assert parse(render({"note": body})) == {"note": body}
    assert time.process_time() - started < 5


@pytest.mark.parametrize("unit", ["<note>\n", "<note>\n<best>\n", "<note>\n</note>x\n", "<note>\nx\n</note>\n"])
def test_message_of_tags_alone_takes_no_time(unit: str) -> None:
    started = time.process_time()
    text = unit * (MAX_REPLY_CHARS // len(unit))
    parse(text)
    text_outside_sections(text)
    assert time.process_time() - started < 5


def test_body_that_no_encoding_carries_is_mended() -> None:
    assert parse(render({"evaluation": "a\ud800b"})) == {"evaluation": "a?b"}


def test_unknown_section_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown prompt section 'secrets'"):
        render({"secrets": "x"})

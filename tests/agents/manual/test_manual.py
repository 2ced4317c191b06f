"""`manual/DIR`: prompts and replies as real files, answered by another thread."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from agents.job import JobSpec, run_job
from agents.llm.budget import Budget
from agents.llm.client import ModelRouter
from agents.llm.ledger import ledger_key
from agents.manual.format import read_reply
from agents.manual.model import ManualLLM
from agents.prompting.parse import extract_advice, extract_candidate
from agents.prompting.sections import render
from agents.protocols import LLMCancelled, Message, ModelUnavailable, Outcome, ResumeState, Tool
from agents.stop_rules import StopReason
from db.types import clean_json
from tasks.outcomes import candidate_hash
from tests.fakes import ScriptedLLM, fenced
from tests.support.cpu_platform import PROMPTS

CANDIDATE = 'import torch\n\n\nclass ModelNew(torch.nn.Module):\n    """Fast."""\n'
ADVICE = '{"bottleneck": "b", "change": "tile it"}'
PROMPT = [
    Message("system", "You write kernels."),
    Message("user", render({"request": "repair", "reference": "class Model: pass\n# ```\n"}) + "\n\nMend it."),
]
SEARCH = Tool("search", "Looks things up.", {"type": "object", "properties": {"query": {"type": "string"}}})


def never():
    return False


@pytest.fixture
def answering():
    """Calls a function in a thread of its own as soon as a file is there; fails the test if it failed."""
    threads = []
    errors = []

    def start(path, act):
        def work():
            try:
                wait_for(path)
                act()
            except Exception as error:
                errors.append(error)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(20)
    assert errors == []


def wait_for(path, timeout=20):
    deadline = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def ask(folder, messages=PROMPT, llm=None, should_stop=never, **options):
    return (llm or ManualLLM()).complete(f"manual/{folder}", messages, should_stop=should_stop, **options)


def prompts(folder):
    return sorted(path.name for path in folder.glob("*.prompt.md"))


# Prompts


def test_the_prompt_is_whole_and_says_how_to_answer(tmp_path, answering):
    folder = tmp_path / "new" / "inbox"
    prompt = folder / "001-repair.prompt.md"
    answering(prompt, lambda: (folder / "001-repair.reply.md").write_text(fenced(CANDIDATE)))
    waits = []
    reply = ask(folder, llm=ManualLLM(waits.append))
    assert extract_candidate(reply.text) == CANDIDATE
    text = prompt.read_text()
    order = ["You write kernels.", "<request>", "class Model: pass", "Mend it.", "001-repair.reply.md"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert waits == [f"waiting for {folder / '001-repair.reply.md'}"]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_what_it_took_is_counted_roughly_and_costs_nothing(tmp_path, answering):
    answering(tmp_path / "001-repair.prompt.md", lambda: (tmp_path / "001-repair.reply.md").write_text("x" * 400))
    reply = ask(tmp_path)
    assert (reply.cost_usd, reply.completion_tokens, reply.attempts, reply.truncated) == (0.0, 100, 1, False)
    assert reply.prompt_tokens == sum(len(message.content) for message in PROMPT) // 4
    assert reply.latency_s >= 0.5
    price = ManualLLM().price("manual/x")
    assert (price.prompt_usd, price.reply_usd) == (0.0, 0.0)
    assert ManualLLM().reply_limit("manual/x") > 100_000


def test_prompts_are_numbered_also_after_a_restart(tmp_path):
    (tmp_path / "007-write.prompt.md").write_text("somebody else's\n")
    for number, words in enumerate(("one", "two"), start=8):
        messages = [*PROMPT, Message("user", words)]
        (tmp_path / f"{number:03}-repair.reply.md").write_text(words)
        assert ask(tmp_path, messages).text == words
    assert prompts(tmp_path) == ["007-write.prompt.md", "008-repair.prompt.md", "009-repair.prompt.md"]


def test_a_job_that_starts_again_finds_the_reply_that_is_there(tmp_path):
    stopped = threading.Event()
    threading.Timer(0.3, stopped.set).start()
    with pytest.raises(LLMCancelled):
        ask(tmp_path, should_stop=stopped.is_set)
    (tmp_path / "001-repair.reply.md").write_text("while you were away")
    assert ask(tmp_path).text == "while you were away"
    assert prompts(tmp_path) == ["001-repair.prompt.md"]
    (tmp_path / "002-repair.reply.md").write_text("with tools")
    assert ask(tmp_path, tools=[SEARCH]).text == "with tools"  # another prompt: it offers something else
    assert len(prompts(tmp_path)) == 2


def test_the_same_question_asked_again_on_purpose_is_a_question_of_its_own(tmp_path):
    llm = ManualLLM()
    for number in (1, 2, 3):
        (tmp_path / f"{number:03}-repair.reply.md").write_text(f"try {number}")
    assert [ask(tmp_path, llm=llm).text for _ in range(3)] == ["try 1", "try 2", "try 3"]
    assert len(prompts(tmp_path)) == 3


def test_replies_that_the_ledger_has_answer_nothing_else(tmp_path):
    for number in (1, 3):
        (tmp_path / f"{number:03}-repair.reply.md").write_text("the same")
    stopped = threading.Event()
    llm = ManualLLM()
    replies = []
    threads = [
        threading.Thread(target=lambda: replies.append(ask(tmp_path, llm=llm, should_stop=stopped.is_set)), daemon=True)
        for _ in range(3)
    ]
    excepthook, threading.excepthook = threading.excepthook, lambda _: None  # the cancelled one
    for thread in threads:
        thread.start()
    wait_for(tmp_path / "003-repair.prompt.md")
    while len(replies) < 2:
        time.sleep(0.05)
    stopped.set()
    for thread in threads:
        thread.join(5)
    threading.excepthook = excepthook
    key = ledger_key("", f"manual/{tmp_path}", PROMPT)
    resume_state = ResumeState(replies={f"1/coder/0{key}": replies[0], f"3/coder/0{key}": replies[1]})
    (tmp_path / "002-repair.reply.md").write_text("late")
    again = ManualLLM(resume_state=resume_state)
    (tmp_path / "004-repair.reply.md").write_text("new")
    assert [ask(tmp_path, llm=again).text for _ in range(2)] == ["late", "new"]


def test_prompts_asked_at_the_same_time_get_files_of_their_own(tmp_path):
    for number in range(1, 9):
        (tmp_path / f"{number:03}-prompt.reply.md").write_text("same")
    asked = [[Message("user", f"question {number}")] for number in range(8)]
    threads = [threading.Thread(target=ask, args=(tmp_path, messages)) for messages in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    texts = [(tmp_path / name).read_text() for name in prompts(tmp_path)]
    assert sorted(line for text in texts for line in text.splitlines() if line.startswith("question")) == [
        f"question {number}" for number in range(8)
    ]


@pytest.mark.parametrize(
    ("request_text", "name"),
    [
        ("judge-improve", "judge-improve"),
        ("../../etc/passwd", "etc-passwd"),
        ("Schön & \x1b[2J", "sch-n-2j"),
        ("/" * 50, "prompt"),
        ("x" * 300, "x" * 40),
    ],
)
def test_what_is_asked_for_never_leads_out_of_the_folder(tmp_path, request_text, name):
    (tmp_path / f"001-{name}.reply.md").write_text("here")
    assert ask(tmp_path, [Message("user", render({"request": request_text}))]).text == "here"
    assert prompts(tmp_path) == [f"001-{name}.prompt.md"]


def test_text_that_utf8_cannot_hold_is_replaced(tmp_path):
    (tmp_path / "001-prompt.reply.md").write_text("fine")
    assert ask(tmp_path, [Message("user", "a lone \ud800 surrogate")]).text == "fine"


# Replies


@pytest.mark.parametrize("kind", ["md", "py", "json"])
def test_reply_is_clean_by_the_stores_rule(kind):
    for text in (
        "a\0b\ud800",
        json.dumps({"text": "\0", "tool_calls": [{"id": "\0", "name": "\ud800", "arguments": "\0"}]}),
    ):
        answer, calls = read_reply(text, kind, stem="001-x", offered=[SEARCH])
        kept = [answer, [call.to_json() for call in calls]]
        assert clean_json(kept) == kept


def test_reply_with_a_null_byte_is_known_again_as_the_ledger_has_it(tmp_path):
    (tmp_path / "001-repair.reply.md").write_bytes(b"a\0b")
    reply = ask(tmp_path)
    assert reply.text == "a\ufffdb"
    resume_state = ResumeState(replies={"1/coder/0" + ledger_key("", f"manual/{tmp_path}", PROMPT): reply})
    (tmp_path / "002-repair.reply.md").write_text("new")
    assert ask(tmp_path, llm=ManualLLM(resume_state=resume_state)).text == "new"


def test_a_bare_candidate_and_bare_advice_are_as_good_as_fenced_ones(tmp_path):
    source = CANDIDATE + '"""\n```python\nquoted\n```\n"""\n'
    (tmp_path / "001-repair.reply.py").write_text("\ufeff" + source)
    assert extract_candidate(ask(tmp_path).text) == source
    other = tmp_path / "judge"
    other.mkdir()
    (other / "001-repair.reply.json").write_text(ADVICE)
    assert extract_advice(ask(other).text).change == "tile it"


def test_tools_are_shown_and_called(tmp_path, answering):
    call = '{"text": "I look.", "tool_calls": [{"name": "search", "arguments": {"query": "avx"}}]}'
    prompt = tmp_path / "001-repair.prompt.md"
    answering(prompt, lambda: (tmp_path / "001-repair.reply.json").write_text(call))
    reply = ask(tmp_path, tools=[SEARCH])
    assert reply.text == "I look."
    assert [(each.id, each.name, each.arguments) for each in reply.tool_calls] == [
        ("001-repair-1", "search", '{"query": "avx"}')
    ]
    assert "Looks things up." in prompt.read_text()
    assert '"tool_calls"' in prompt.read_text()


@pytest.mark.parametrize("text", ["{", "[1]", '{"tool_calls": [3]}', '{"tool_calls": [{"name": ""}]}', "[" * 100_000])
def test_a_call_that_is_none_is_text(tmp_path, text):
    (tmp_path / "001-repair.reply.json").write_text(text)
    reply = ask(tmp_path, tools=[SEARCH])
    assert reply.tool_calls == ()
    assert text in reply.text


def test_a_reply_counts_only_once_it_is_whole(tmp_path, answering):
    path = tmp_path / "001-repair.reply.md"

    def write_slowly():
        with path.open("w") as file:
            for part in ("", "one ", "two ", "three"):
                file.write(part)
                file.flush()
                time.sleep(0.3)

    answering(tmp_path / "001-repair.prompt.md", write_slowly)
    assert ask(tmp_path).text == "one two three"


def test_a_reply_larger_than_2_mib_is_cut_and_says_so(tmp_path):
    (tmp_path / "001-repair.reply.md").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    reply = ask(tmp_path)
    assert (len(reply.text), reply.truncated) == (2 * 1024 * 1024, True)


def test_bytes_that_are_not_utf8_are_replaced(tmp_path):
    (tmp_path / "001-repair.reply.md").write_bytes(b"caf\xe9")
    assert ask(tmp_path).text == "caf\ufffd"


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo"])
def test_what_is_not_a_file_is_not_read_and_this_is_said(tmp_path, answering, kind):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "inbox"
    folder.mkdir()
    reply = folder / "001-repair.reply.md"
    if kind == "symlink":
        reply.symlink_to(secret)
    elif kind == "folder":
        reply.mkdir()
    else:
        os.mkfifo(reply)
    waits = []
    told = threading.Event()

    def on_wait(text):
        waits.append(text)
        if "not a regular file" in text:
            told.set()

    def answer():
        assert told.wait(10)
        (folder / "001-repair.reply.py").write_text(CANDIDATE)

    answering(folder / "001-repair.prompt.md", answer)
    assert extract_candidate(ask(folder, llm=ManualLLM(on_wait)).text) == CANDIDATE
    assert len(waits) == 2


def test_a_stop_ends_the_wait_at_once(tmp_path):
    stop = threading.Event()
    stopped_at = []

    def request():
        stopped_at.append(time.monotonic())
        stop.set()

    threading.Timer(0.3, request).start()
    with pytest.raises(LLMCancelled, match=r"001-repair\.reply\.md"):
        ask(tmp_path, should_stop=stop.is_set)
    assert time.monotonic() - stopped_at[0] < 0.2


# Folders


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("manual/", "manual/DIR"),
        ("manual/  ", "manual/DIR"),
        ("manual/a\0b", "manual/DIR"),
        ("manual/{tmp}/file", "there is a file where a folder is needed"),
        ("manual/{tmp}/file/inbox", "there is a file where a folder is needed"),
        ("manual//proc/nowhere", "cannot be used"),
        ("manual/{tmp}/" + "x" * 300, "cannot be used"),
    ],
)
def test_a_folder_that_cannot_be_used_is_no_model_to_work_with(tmp_path, model, words):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailable, match="manual") as caught:
        ManualLLM().complete(model.format(tmp=tmp_path), PROMPT, should_stop=never)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ModelUnavailable, match="Permission denied"):
        ask(tmp_path)
    tmp_path.chmod(0o700)


# In a job


def test_each_model_is_asked_where_it_answers(tmp_path):
    (tmp_path / "001-repair.reply.md").write_text("by hand")
    others = ScriptedLLM(["by machine"])
    models = ModelRouter(others, ManualLLM())
    assert models.complete(f"manual/{tmp_path}", PROMPT, should_stop=never).text == "by hand"
    assert models.complete("openai/x", PROMPT, should_stop=never).text == "by machine"
    assert others.models == ["openai/x"]
    assert models.reply_limit("manual/x") > 0


def test_coder_and_judge_of_a_job_can_both_be_files(tmp_path, answering):
    def answer(name, text):
        answering(tmp_path / f"{name.partition('.')[0]}.prompt.md", lambda: (tmp_path / name).write_text(text))

    answer("001-write.reply.md", "no code at all")
    answer("002-write.reply.py", CANDIDATE)
    answer("003-judge-improve.reply.json", ADVICE)
    answer("004-improve.reply.md", fenced(CANDIDATE + "x = 1\n"))
    spec = JobSpec(
        task_id="local/op",
        task_source="class Model: pass",
        category="math",
        dtype="float32",
        platform="cpu",
        device="a CPU",
        prompts=PROMPTS,
        model=f"manual/{tmp_path}",
        rounds=2,
        budget=Budget(usd=0.0),
    )
    events = []
    result = run_job(
        spec,
        evaluate=lambda source, _: Outcome(candidate_hash(source), "passed", speedup=2.0, speedup_low=1.9),
        prove=lambda source: Outcome(candidate_hash(source), "passed", speedup=2.0, speedup_low=1.9),
        record=events.append,
        llm=ModelRouter(ScriptedLLM([]), ManualLLM()),
        should_stop=never,
    )
    assert result.stop_reason == StopReason.ROUNDS
    assert result.spent.cost_usd == 0.0
    assert "no closed ```python block" in (tmp_path / "002-write.prompt.md").read_text()
    assert "tile it" in (tmp_path / "004-improve.prompt.md").read_text()
    assert len(Path(tmp_path / "004-improve.prompt.md").read_text()) > 1000

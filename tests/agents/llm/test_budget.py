"""Budgets hold whatever calls cost and however they fail: alone, side by side, and across resumes."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.llm.budget import Budget, BudgetAccount, max_prompt_tokens
from agents.llm.ledger import Ledger, check_prices, ledger_key
from agents.llm.models import import_litellm, price_of
from agents.prompting.builder import Brief
from agents.protocols import (
    FRESH_START,
    NO_PREBUILDS,
    NOTHING_SPENT,
    BudgetTooSmall,
    Evaluate,
    Event,
    LLMCancelled,
    LLMError,
    LLMFailed,
    Message,
    Outcome,
    Price,
    PriceUnknown,
    Reply,
    ReplyLost,
    ResumeState,
    Spent,
    Tool,
    ignore_fault,
)
from agents.replay import resume_state_from_events
from agents.stop_rules import StopRules
from agents.strategies.context import SearchContext
from tasks.outcomes import candidate_hash

PRICE = Price(3e-6, 15e-6)
ASK = [Message("system", "You are terse."), Message("user", "a" * 400)]


@dataclass(frozen=True)
class CallBehavior:
    """What the provider does with a call: how much of the worst case it bills, and whether a reply comes of it."""

    prompt_share: float
    reply_share: float
    fault: str  # "", free, lost, lost_unbilled, killed


@dataclass
class Provider:
    """A provider that keeps its own books."""

    behaviors: list[CallBehavior]
    price_known: bool = True
    billed_usd: float = 0.0
    billed_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        reply_tokens: int | None = None,
        tools: Sequence[Tool] = (),
        on_fault: Callable[[str], None] = ignore_fault,
    ) -> Reply:
        assert reply_tokens is not None
        with self.lock:
            behavior = self.behaviors.pop(0) if self.behaviors else CallBehavior(1.0, 1.0, "")
            if behavior.fault == "free":
                raise LLMFailed(model, "rate limit")
            prompt = round(max_prompt_tokens(messages, tools) * behavior.prompt_share)
            reply = round(reply_tokens * behavior.reply_share)
            cost = prompt * PRICE.prompt_usd + reply * PRICE.reply_usd
            if behavior.fault != "lost_unbilled":
                self.billed_usd += cost
                self.billed_tokens += prompt + reply
        if behavior.fault.startswith("lost"):
            raise ReplyLost(model, "the stream broke off")
        if behavior.fault == "killed":
            raise KeyboardInterrupt
        return Reply("x", model, prompt, reply, cost if self.price_known else None, 0.0)

    def price(self, model: str) -> Price | None:
        return PRICE if self.price_known else None

    def reply_limit(self, model: str) -> int:
        return 4000


def ask(ledger: Ledger, slot: str) -> Reply:
    return ledger.ask(slot, "openai/x", ASK, role="coder", purpose="write", round_number=1)


shares = st.floats(0, 1)
behaviors = st.builds(
    CallBehavior, shares, shares, st.sampled_from(["", "", "", "free", "lost", "lost_unbilled", "killed"])
)


@given(st.lists(behaviors, max_size=40), st.floats(0, 1), st.integers(0, 60_000), st.booleans())
def test_no_budget_is_ever_exceeded(done: list[CallBehavior], usd: float, tokens: int, price_known: bool) -> None:
    """Faults that bill, faults that do not, and processes that die; each death is a resume from the events."""
    provider, events = Provider([*done], price_known), list[Event]()
    budget = Budget(usd=usd, tokens=tokens)
    for number in range(60):
        resume_state = resume_state_from_events(events)
        ledger = Ledger(
            provider,
            events.append,
            lambda: False,
            BudgetAccount(budget, resume_state.spent),
            resume_state=resume_state,
            price=PRICE,
        )
        try:
            ask(ledger, f"{number}/coder/0")
        except BudgetTooSmall:
            break
        except (LLMError, KeyboardInterrupt):
            pass
        spent = resume_state_from_events(events).spent
        assert provider.billed_usd <= usd + 1e-9
        assert provider.billed_tokens <= tokens
        assert spent.cost_usd <= provider.billed_usd + 1e-9, "never more than was billed is called spent"
        assert provider.billed_usd <= spent.cost_usd + spent.unsettled_usd + 1e-9, "and nothing billed is forgotten"
        assert provider.billed_tokens <= spent.tokens + spent.unsettled_tokens


@given(st.lists(behaviors.filter(lambda behavior: behavior.fault != "killed"), max_size=40), st.floats(0, 0.5))
def test_branches_in_parallel_share_one_account(done: list[CallBehavior], usd: float) -> None:
    provider, events = Provider([*done]), list[Event]()
    account = BudgetAccount(Budget(usd=usd), NOTHING_SPENT)
    ledger = Ledger(provider, events.append, lambda: False, account)

    def work(branch: int) -> None:
        for number in range(8):
            try:
                ask(ledger, f"{branch}.{number}/coder/0")
            except BudgetTooSmall:
                return
            except LLMError:
                pass

    threads = [threading.Thread(target=work, args=(branch,)) for branch in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert provider.billed_usd <= usd + 1e-9
    spent = account.spent
    assert spent.cost_usd <= provider.billed_usd + 1e-9 <= spent.cost_usd + spent.unsettled_usd + 2e-9


def test_the_reply_is_limited_to_what_is_left() -> None:
    limits: list[int | None] = []

    class Short(Provider):
        def complete(self, *args: object, reply_tokens: int | None = None, **more: object) -> Reply:
            limits.append(reply_tokens)
            return Reply("x", "m", 0, reply_tokens or 0, (reply_tokens or 0) * PRICE.reply_usd, 0.0)

    bound = max_prompt_tokens(ASK)
    ledger = Ledger(Short([]), lambda event: None, lambda: False, BudgetAccount(Budget(tokens=6000), NOTHING_SPENT))
    ask(ledger, "1")
    ask(ledger, "2")
    assert limits == [4000, 2000 - bound]
    with pytest.raises(BudgetTooSmall, match="tokens left are too few"):
        ask(ledger, "3")


def test_nothing_is_sent_that_cannot_be_paid_for() -> None:
    provider, events = Provider([]), list[Event]()
    ledger = Ledger(provider, events.append, lambda: False, BudgetAccount(Budget(usd=0.001), NOTHING_SPENT))
    with pytest.raises(BudgetTooSmall, match=r"\$0\.0010 left does not pay for the next call"):
        ask(ledger, "1")
    assert provider.billed_usd == 0
    assert [event.kind for event in events] == ["llm_failed"]
    assert resume_state_from_events(events).spent == Spent()


def test_wall_time_counts_over_all_runs_and_cuts_a_call_short() -> None:
    now = [0.0]
    account = BudgetAccount(Budget(wall_s=100), Spent(wall_s=90), clock=lambda: now[0])

    class Slow(Provider):
        def complete(self, model: str, *args: object, should_stop: Callable[[], bool], **more: object) -> Reply:
            now[0] += 9
            assert not should_stop()
            now[0] += 2
            assert should_stop()
            raise LLMCancelled(model, "cancelled")

    ledger = Ledger(Slow([]), lambda event: None, lambda: False, account)
    with pytest.raises(BudgetTooSmall, match="wall time"):
        ask(ledger, "1")
    assert account.spent.unsettled_usd > 0, "the provider may bill what was cut short"
    with pytest.raises(BudgetTooSmall, match="wall time"):
        ask(ledger, "2")


@dataclass
class Cancelled(Provider):
    """A job that is told to stop in each of its calls."""

    sent: bool = True

    def complete(self, model: str, *args: object, **more: object) -> Reply:
        raise LLMCancelled(model, "cancelled", sent=self.sent)


def test_a_call_cancelled_before_it_was_sent_counts_nothing() -> None:
    events = list[Event]()
    worst = max_prompt_tokens(ASK) + 4000
    account = BudgetAccount(Budget(usd=1.0, tokens=worst), NOTHING_SPENT, clock=lambda: 0.0)
    ledger = Ledger(Cancelled([], sent=False), events.append, lambda: False, account)
    for _ in range(3):  # the budget bears one call, and after each the whole of it is there again
        with pytest.raises(LLMCancelled):
            ask(ledger, "1")
    assert account.spent == NOTHING_SPENT
    assert [event.data["maybe_paid"] for event in events if event.kind == "llm_failed"] == [False] * 3
    assert resume_state_from_events(events).spent == NOTHING_SPENT, "nor does it count when the job is taken up again"


def test_a_call_cancelled_after_it_was_sent_counts_at_its_worst() -> None:
    events = list[Event]()
    worst = max_prompt_tokens(ASK) + 4000
    account = BudgetAccount(Budget(usd=1.0, tokens=worst), NOTHING_SPENT, clock=lambda: 0.0)
    ledger = Ledger(Cancelled([], sent=True), events.append, lambda: False, account)
    with pytest.raises(LLMCancelled):
        ask(ledger, "1")
    usd = max_prompt_tokens(ASK) * PRICE.prompt_usd + 4000 * PRICE.reply_usd
    assert account.spent == Spent(unsettled_usd=pytest.approx(usd), unsettled_tokens=worst)
    assert resume_state_from_events(events).spent == account.spent
    with pytest.raises(BudgetTooSmall):
        ask(ledger, "2")


def test_a_provider_that_bills_beyond_the_worst_case_does_so_once() -> None:
    """What it takes above the list is found out when the call is paid; nobody can prevent that."""
    provider = Provider([CallBehavior(1.0, 3.0, "")])
    account = BudgetAccount(Budget(usd=0.1), NOTHING_SPENT)
    ledger = Ledger(provider, lambda event: None, lambda: False, account)
    ask(ledger, "1")
    assert account.spent.cost_usd == provider.billed_usd > 0.1
    with pytest.raises(BudgetTooSmall):
        ask(ledger, "2")


def test_evaluations_are_counted_and_the_last_must_fit_into_the_time() -> None:
    now = [0.0]
    account = BudgetAccount(Budget(wall_s=30, evaluations=2), Spent(evaluations=1), clock=lambda: now[0])
    with pytest.raises(BudgetTooSmall, match="30 s left are too few"):
        account.charge_evaluation(longest_s=31.0)
    account.charge_evaluation(longest_s=5.0)
    with pytest.raises(BudgetTooSmall, match="all 2 evaluations"):
        account.charge_evaluation(longest_s=5.0)


def search_context(
    account: BudgetAccount, evaluate: Evaluate, resume_state: ResumeState = FRESH_START
) -> SearchContext:
    return SearchContext(
        brief=Brief("task", "reference", "device", "platform", "exemplar"),
        rules=StopRules(rounds=9, plateau_rounds=0, roofline_target=1.0),
        coder_model="openai/x",
        judge_model="openai/x",
        seed_model=None,
        coder_is_deterministic=False,
        ledger=Ledger(Provider([]), lambda event: None, lambda: False, account),
        evaluate=evaluate,
        prebuilds=NO_PREBUILDS,
        record=lambda event: None,
        should_stop=lambda: False,
        resume_state=resume_state,
    )


@pytest.mark.parametrize(("took_s", "fits"), [(5.0, True), (49.0, True), (50.0, False), (60.0, False)])
def test_the_next_evaluation_must_fit_by_what_one_took_and_not_by_what_it_waited(took_s: float, fits: bool) -> None:
    """Each is under way for 50 of the 100 seconds, most of which it may have waited for the device."""
    now = [0.0]

    def evaluate(source: str, champion: str | None) -> Outcome:
        now[0] += 50
        return Outcome(candidate_hash(source), "wrong_output", took_s=took_s)

    account = BudgetAccount(Budget(wall_s=100), NOTHING_SPENT, clock=lambda: now[0])
    job = search_context(account, evaluate)
    job.evaluate(1, "first", None)
    if fits:
        job.evaluate(2, "second", None)
    else:
        with pytest.raises(BudgetTooSmall, match="50 s left are too few for another evaluation"):
            job.evaluate(2, "second", None)
    assert account.spent.evaluations == 1 + fits


def test_what_evaluations_of_an_earlier_run_took_is_known_when_the_job_is_taken_up_again() -> None:
    known = Outcome(candidate_hash("first"), "wrong_output", took_s=40.0)
    account = BudgetAccount(Budget(wall_s=100), Spent(wall_s=70, evaluations=1), clock=lambda: 0.0)
    job = search_context(
        account, lambda source, champion: known, ResumeState(account.spent, evaluated=frozenset({known.candidate_hash}))
    )
    job.evaluate(1, "first", None)  # answered from the store; counts nothing
    with pytest.raises(BudgetTooSmall, match="30 s left are too few"):
        job.evaluate(2, "second", None)
    assert account.spent.evaluations == 1


def test_a_model_without_a_price_needs_one_or_a_cap_in_tokens() -> None:
    provider = Provider([], price_known=False)
    ledger = Ledger(provider, lambda event: None, lambda: False, BudgetAccount(Budget(usd=1), NOTHING_SPENT))
    with pytest.raises(PriceUnknown, match="--price or a cap in tokens"):
        check_prices(ledger, ["openai/x"], tokens_capped=False)
    check_prices(ledger, ["openai/x"], tokens_capped=True)
    priced = Ledger(
        provider, lambda event: None, lambda: False, BudgetAccount(Budget(usd=1), NOTHING_SPENT), price=PRICE
    )
    check_prices(priced, ["openai/x"], tokens_capped=False)
    assert ask(priced, "1").cost_usd == pytest.approx(max_prompt_tokens(ASK) * 3e-6 + 4000 * 15e-6)


def test_a_reply_in_the_ledger_is_not_asked_for_again() -> None:
    known = Reply("kept", "openai/x", 10, 10, 0.5, 0.0)
    resume_state = ResumeState(Spent(cost_usd=0.5), {ledger_key("1/coder/0", "openai/x", ASK): known})
    provider = Provider([])
    account = BudgetAccount(Budget(usd=0.5), resume_state.spent)
    ledger = Ledger(provider, lambda event: None, lambda: False, account, resume_state=resume_state)
    assert ask(ledger, "1/coder/0") == known
    assert (provider.billed_usd, account.spent.cost_usd) == (0.0, 0.5)
    with pytest.raises(BudgetTooSmall):
        ask(ledger, "2/coder/0")


@pytest.mark.parametrize("model", ["gpt-3.5-turbo", "gpt-4o"])
@pytest.mark.parametrize(
    "text",
    [
        "3 1 4 1 5 " * 300,
        "a1b2c3d4" * 300,
        "QXZJKWVBTPLM" * 200,
        str(list(range(2000))),
        "    " * 500 + "x\n" * 300,
        "def forward(self, x):\n        return torch.relu(x) * self.scale\n" * 60,
        "\u00e4\u6f22\U0001f600" * 300,
        "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=3000)),
        "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz ", k=3000)),
        "".join(map(chr, random.Random(3).choices(range(32, 127), k=3000))),
    ],
    ids=["digits", "mixed", "capitals", "list", "blank", "code", "unicode", "letters", "words", "ascii"],
)
def test_neither_cl100k_nor_o200k_makes_more_of_a_prompt_than_the_bound(model: str, text: str) -> None:
    counted = import_litellm().token_counter(model=model, text=text)
    assert counted <= max_prompt_tokens([Message("user", text)])


def test_ordinary_prompts_are_not_overrated_grossly() -> None:
    text = (Path(__file__).parents[3] / "evaluator/platforms/cpu/prompts/exemplars/normalization.py").read_text()
    counted = import_litellm().token_counter(model="gpt-4o", text=text)
    assert max_prompt_tokens([Message("user", text)]) < 3.5 * counted


def test_longer_prompts_may_cost_more_a_token() -> None:
    price = Price(1e-6, 4e-6, long_prompts=((200_000, 2e-6, 6e-6),))
    assert price.for_prompt(200_000) == Price(1e-6, 4e-6)
    assert price.for_prompt(200_001) == Price(2e-6, 6e-6)
    account = BudgetAccount(Budget(usd=10.0), NOTHING_SPENT)
    long = [Message("user", "1" * 300_000)]
    bound = max_prompt_tokens(long)
    made = account.reserve("m", long, (), price, 1000)
    assert made.usd == pytest.approx(bound * 2e-6 + 1000 * 6e-6)


def test_the_price_list_tells_of_steps() -> None:
    litellm = import_litellm()
    stepped = [name for name in litellm.model_cost if price_of(litellm, name) and price_of(litellm, name).long_prompts]
    assert stepped, "the list that LiteLLM brings knows some"
    for name in stepped:
        price = price_of(litellm, name)
        assert price is not None
        for above, prompt_usd, reply_usd in price.long_prompts:
            assert above >= 1000 and prompt_usd >= price.prompt_usd and reply_usd >= price.reply_usd


def test_who_waits_for_a_share_of_the_budget_can_be_stopped() -> None:
    account = BudgetAccount(Budget(tokens=5000), NOTHING_SPENT)
    account.reserve("m", ASK, (), PRICE, 4500)
    asked = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) > 2

    with pytest.raises(LLMCancelled) as stopped:
        account.reserve("m", ASK, (), PRICE, 4500, should_stop)
    assert "waiting for its share" in str(stopped.value)
    assert not stopped.value.sent


@given(st.text(max_size=200), st.text(max_size=200))
def test_keys_tell_calls_apart(one: str, other: str) -> None:
    keys = {
        ledger_key(slot, model, [Message("user", text)])
        for slot in ("1/coder/0", "2/coder/0")
        for model in ("a", "b")
        for text in {one, other}
    }
    assert len(keys) == 4 * len({one, other})
    assert all(len(key) <= 128 for key in keys)


@given(st.text(max_size=500))
def test_the_bound_on_a_prompt_grows_with_it(text: str) -> None:
    short, long = max_prompt_tokens([Message("user", text)]), max_prompt_tokens([Message("user", text + "word ")])
    assert 16 <= short < long
    assert short <= len(text.encode("utf-8", "replace")) + 16
    assert FRESH_START.replies == {}

"""The candidate to start from, where the job asks for one: the compiler's kernel as round 1."""

from agents.prompting import coder_messages
from agents.rounds import Round
from agents.workshop import Workshop

CHANGE = "the compiler's kernels as they are"


def seed_rounds(workshop: Workshop) -> tuple[Round, ...]:
    """Round 1 from the seed model; empty if the job has none.

    Raises:
        LLMError: the seed model gives no reply.
        Exception: whatever the evaluator raises.
    """
    if workshop.seed_model is None:
        return ()
    workshop.start_round(1, "write", None)
    messages = coder_messages(workshop.brief, "write", None, ())
    draft = workshop.write(1, messages, request="write", subject=None, model=workshop.seed_model)
    return (workshop.finish_round(1, draft, (), change=CHANGE),)

"""The candidate to start from, where the job asks for one: the compiler's kernel as round 1."""

from agents.errors import LLMError
from agents.prompting import coder_messages
from agents.rounds import Round
from agents.stopping import Stop, stop_for
from agents.workshop import Workshop

CHANGE = "the compiler's kernels as they are"


def seeded(workshop: Workshop, *, plateau: bool = True) -> tuple[tuple[Round, ...], Stop | None]:
    """The rounds that a strategy begins with (round 1 from the seed model, or none), and whether that is the end.

    Raises:
        Exception: whatever the evaluator raises.
    """
    rounds: tuple[Round, ...] = ()
    if workshop.seed_model is not None:
        workshop.start_round(1, "write", None)
        messages = coder_messages(workshop.brief, "write", None, ())
        try:
            draft = workshop.write(1, messages, request="write", subject=None, model=workshop.seed_model)
            rounds = (workshop.finish_round(1, draft, (), change=CHANGE),)
        except LLMError as error:
            return (), stop_for(error)
    return rounds, workshop.stop_now(rounds, plateau=plateau)

"""`kernelwright optimize`."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import (
    Baselines,
    Domain,
    Json,
    Memory,
    Op,
    Origin,
    Out,
    Platform,
    SandboxName,
    Server,
    SourceFile,
)

STRATEGY = (
    "How candidates are searched for: judge (one after the other, with advice), sample (independent tries, pass@k),"
    " contrastive (from scored candidates), tree (several branches), tools (function calling). Default: judge."
)
PRICE = "Dollars for a million tokens, PROMPT,REPLY, where a model's price is not known, such as 0.5,1.5."


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright optimize op.py --rounds 4 --out best.py")(optimize)


def optimize(
    op: Op,
    platform: Platform = None,
    model: Annotated[
        str | None, typer.Option(help="The Coder: LiteLLM's name, builtin/compiler or manual/DIR.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="The Judge. Default: the Coder's model.")] = None,
    strategy: Annotated[str | None, typer.Option(help=STRATEGY)] = None,
    seed: Annotated[str | None, typer.Option(help="Start from a kernel of: compiler.")] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="At most so many dollars for models.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="At most so many tokens, prompts and replies.")] = None,
    budget_s: Annotated[float | None, typer.Option(help="At most so many seconds of work.")] = None,
    budget_evaluations: Annotated[int | None, typer.Option(help="At most so many evaluations.")] = None,
    price: Annotated[str | None, typer.Option(help=PRICE)] = None,
    plateau_rounds: Annotated[int | None, typer.Option(help="Stop after so many rounds in vain; 0: never.")] = None,
    roofline_target: Annotated[float | None, typer.Option(help="Stop at this share of what the device allows.")] = None,
    memory: Memory = None,
    baselines: Baselines = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
    api_base: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the key of the Coder's provider.")
    ] = None,
    domain: Domain = None,
    origin: Origin = None,
    source: SourceFile = None,
    out: Out = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Find a faster kernel for an op, prove it, and write it to a file.

    The default model, builtin/compiler, is a compiler search and not an LLM; it needs no key and no network.
    """
    from agents.llm.models import is_builtin
    from service.cancellation import CancelToken, cancel_on_signals
    from service.cli.job_output import NOT_AN_LLM, finish
    from service.cli.progress import show_progress
    from service.database import open_store
    from service.evaluation_context import check_keys
    from service.jobs.local import optimize as run
    from service.settings import load_settings
    from tasks.translate import read_kernel_file

    settings = load_settings(
        platform=platform,
        model=model,
        judge_model=judge_model,
        strategy=strategy,
        rounds=rounds,
        seed=seed,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        budget_s=budget_s,
        budget_evaluations=budget_evaluations,
        price=price,
        plateau_rounds=plateau_rounds,
        roofline_target=roofline_target,
        memory=memory,
        baselines=baselines,
        sandbox=sandbox,
        image=image,
        api_base=api_base,
        api_key_file=api_key_file,
        server=server,
    )
    asked = {"domain": domain, "origin": origin, "kernel": None if source is None else read_kernel_file(source)}
    if settings.server is not None:
        from service.cli.remote.jobs import optimize_at_server

        own = {"sandbox": sandbox, "image": image, "api_base": api_base, "api_key_file": api_key_file}
        return optimize_at_server(op, settings, server_flags=own, out=out, as_json=as_json, **asked)
    check_keys(settings)
    store = open_store(settings)
    cancel = CancelToken()
    about = NOT_AN_LLM if is_builtin(settings.model) else settings.model
    try:
        with (
            cancel_on_signals(cancel),
            show_progress(f"Optimizing {op} for {settings.platform} with {about}") as observe,
        ):
            report = run(op, settings=settings, store=store, observe=observe, cancel=cancel, out=out, **asked)
    finally:
        store.close()
    return finish(report, cancel, as_json=as_json)

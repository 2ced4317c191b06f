"""`kernelwright sandbox build|check`, `doctor` and `platforms`: what this machine can do."""

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from service.cli.options import Json, Platform, SandboxName


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Where foreign code runs.", epilog="Example: kernelwright sandbox check"
    )
    group.command(epilog="Example: kernelwright sandbox build")(build)
    group.command(epilog="Example: kernelwright sandbox check --sandbox process")(check)
    app.add_typer(group, name="sandbox")
    app.command(epilog="Example: kernelwright doctor")(doctor)
    app.command(epilog="Example: kernelwright platforms")(platforms)


def build(
    base: Annotated[str, typer.Option(metavar="auto|registry|debootstrap", help="Where Debian comes from.")] = "auto",
    wheels: Annotated[Path | None, typer.Option(help="A folder with wheels, beside what pip is set up to use.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Make it although it is there.")] = False,
    platform: Platform = None,
    as_json: Json = False,
) -> None:
    """Make the Docker image of a platform's sandboxes. Takes some minutes and some 3 GB of disk."""
    from sandbox.image.build import build_image
    from service.cli.output import note, print_json
    from service.errors import BadRequest
    from service.evaluation_context import open_platform
    from service.settings import load_settings

    if base not in ("auto", "registry", "debootstrap"):
        raise BadRequest(f"--base {base}: choose auto, registry or debootstrap")
    chosen = cast(Literal["auto", "registry", "debootstrap"], base)
    recipe = open_platform(load_settings(platform=platform).platform).image()
    tag = build_image(recipe, base=chosen, wheels=wheels, force=force, progress=note)
    if as_json:
        print_json({"schema": "kernelwright.image/1", "image": tag})
    else:
        print(tag)


def check(sandbox: SandboxName = None, platform: Platform = None, as_json: Json = False) -> int:
    """Prove on this machine each thing that a sandbox promises; exit status 3 if one is broken."""
    from sandbox.check import check_promises
    from service.cli.output import note, print_json, print_table
    from service.evaluation_context import open_platform, open_sandbox
    from service.settings import load_settings

    settings = load_settings(sandbox=sandbox, platform=platform)
    variables = open_platform(settings.platform).image().variables
    with open_sandbox(settings, own_code_only=True) as chosen:
        checks = check_promises(chosen, image_variables=variables, progress=lambda line: note(f"trying {line}"))
    broken = [check.promise.value for check in checks if check.kept is False]
    if as_json:
        promises = [{"promise": each.promise.value, "kept": each.kept, "detail": each.detail} for each in checks]
        print_json({"schema": "kernelwright.sandbox_check/1", "sandbox": chosen.name, "promises": promises})
    else:
        words = {True: "kept", False: "BROKEN", None: "not promised"}
        print_table(
            ("promise", chosen.name, "detail"), [(each.promise.value, words[each.kept], each.detail) for each in checks]
        )
    if broken:
        note(f"error: the {chosen.name} sandbox breaks its word here: {', '.join(broken)}; do not trust it")
    return 3 if broken else 0


def doctor(as_json: Json = False) -> int:
    """Say what this machine has, what it lacks and what to do; exit status 3 if something needed is missing."""
    from dataclasses import asdict

    from service.cli.output import print_json, print_table
    from service.doctor import can_work, examine_machine
    from service.settings import load_settings

    findings = examine_machine(load_settings())
    ready = can_work(findings)
    if as_json:
        print_json(
            {"schema": "kernelwright.doctor/1", "ok": ready, "findings": [asdict(finding) for finding in findings]}
        )
    else:
        rows: list[tuple[Any, ...]] = [
            (found.name, found.status, found.detail + (f" -> {found.remedy}" if found.remedy else ""))
            for found in findings
        ]
        print_table(("what", "status", "detail"), rows)
    return 0 if ready else 3


def platforms(as_json: Json = False) -> None:
    """List what can be optimized for: this machine's device, what a verdict proves, and what is missing here."""
    from dataclasses import asdict

    from evaluator.platforms import PLATFORM_NAMES, load_platform
    from evaluator.platforms import proves as proof
    from sandbox.doctor import examine_platform
    from service.cli.output import print_json, print_table
    from service.evaluation_context import figure_store
    from service.jobs.spec import prompts_of
    from service.settings import load_settings
    from tasks.metadata import CATEGORIES

    store = figure_store(load_settings())
    known = [load_platform(name) for name in PLATFORM_NAMES]
    figures = {each.name: store.known(each.device()) for each in known}
    found_here = {
        each.name: examine_platform(each.name, each.image().tag, each.host_programs(), each.host_packages())
        for each in known
    }
    categories = [name for name in CATEGORIES if name != "other"]
    exemplars = {each.name: prompts_of(each.name).exemplars for each in known}
    without = {each.name: [name for name in categories if name not in exemplars[each.name]] for each in known}
    proves = {each.name: proof(each) for each in known}
    if as_json:
        described: list[dict[str, Any]] = [
            {
                "platform": each.name,
                "language": each.language,
                "device": {"name": each.device().name, **each.device().facts},
                "proves": proves[each.name],
                "ready": found_here[each.name].ready,
                "image": asdict(found_here[each.name].image),
                "programs": [asdict(found) for found in found_here[each.name].programs],
                "packages": [asdict(found) for found in found_here[each.name].packages],
                "exemplars": sorted(exemplars[each.name]),
                "without_exemplar": without[each.name],
                "figures": [
                    {"sandbox": found.sandbox, "measured_on": found.measured_on, **found.values}
                    for found in figures[each.name]
                ],
            }
            for each in known
        ]
        print_json({"schema": "kernelwright.platforms/1", "platforms": described})
        return
    rows = [
        (
            each.name,
            each.language,
            "; ".join(each.device().describe().splitlines()),
            proves[each.name],
            "yes" if found_here[each.name].ready else "no",
        )
        for each in known
    ]
    print_table(("platform", "language", "device", "a verdict is", "ready here"), rows)
    for each in known:
        if found_here[each.name].image.status != "ok":
            print(f"{each.name}: {found_here[each.name].image.detail} -> {found_here[each.name].image.remedy}")
        for missing in (*found_here[each.name].missing, *found_here[each.name].absent):
            print(f"{each.name}: {missing.name} {missing.detail} -> {missing.remedy}")
    for each in known:
        if lacking := without[each.name]:
            shown = len(categories) - len(lacking)
            print(f"{each.name}: exemplars for {shown} of {len(categories)} categories; none for {', '.join(lacking)}")
    for each in known:
        for found in figures[each.name]:
            print(f"\n{each.name}, in the {found.sandbox} sandbox on {found.measured_on}:")
            print(each.device_text(each.device(), found.values))

"""The command line. Each command is one small function; an experiment's flags come from its fields.

Exit codes: 0 success, 1 a check or a run failed, 2 bad input (one line that names the value and the choices, no traceback).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from ubex import __version__, checks
from ubex.runs.store import StorageError
from ubex.types import InputError

T = TypeVar("T")

VIDEO = "evaluation.gif"
BAD_INPUT = 2
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `ubex`."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(usage())
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"ubex {__version__}")
            return 0
        command = COMMANDS[checks.one_of("command", arguments[0], COMMANDS)]
        return command(arguments[1:])
    except InputError as error:
        print(f"ubex: {error}", file=sys.stderr)
        return BAD_INPUT
    except StorageError as error:
        print(f"ubex: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader of our output went away, as in `ubex list | head -1`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("ubex: interrupted", file=sys.stderr)
        return 130


def usage() -> str:
    """What `ubex --help` prints."""
    lines = ["usage: ubex COMMAND [options]", "", "commands:"]
    lines += [f"  {name:<8} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "`ubex COMMAND --help` shows the options of one."])


def parse(kind: Callable[..., T], arguments: list[str], program: str) -> T:
    """Flags to a dataclass; tyro's framed messages become one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(kind, args=arguments, prog=program)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise SystemExit(0) from None
        raise InputError(f"{one_line(captured.getvalue())} (see `{program} --help`)") from None


def one_line(framed: str) -> str:
    """The sentence inside one of tyro's frames, without its title, the flag's help and the colours."""
    words = re.sub(r"\x1b\[[0-9;]*m|[│┃]", " ", framed)
    lines = [line.strip() for line in words.splitlines() if line.strip() and not re.search(r"[─━╭╰]", line)]
    text = re.split(r"Argument helptext:|For full helptext", " ".join(lines))[0].strip()
    return re.sub(r"\s+", " ", text) or "bad options"


def console() -> Console:
    """Where people read: wide enough for tables when the output is a file."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)


@dataclass(frozen=True)
class DemoOptions:
    """Options of `ubex demo`."""

    out: Path = Path("runs/demo")
    """Folder for the results and figures."""


def demo_command(arguments: list[str]) -> int:
    """the main job on defaults, in about two minutes: Table 1, every agent on DeepSea, a report page"""
    from ubex.demo import demo

    demo(parse(DemoOptions, arguments, "ubex demo").out, console())
    return 0


@dataclass(frozen=True)
class NoOptions:
    """This command takes no options."""


def list_command(arguments: list[str]) -> int:
    """environments, estimators, agents, experiments"""
    from ubex.deep.methods import DEEP_METHODS
    from ubex.envs import ENVS
    from ubex.envs.locomotion import LOCOMOTION
    from ubex.estimators import ESTIMATORS
    from ubex.experiments import EXPERIMENTS
    from ubex.tabular.agents import AGENTS

    parse(NoOptions, arguments, "ubex list")
    terminal = console()
    kinds: dict[str, Mapping[str, Any]] = {
        "environments": ENVS,
        "environments, locomotion": LOCOMOTION,
        "estimators": ESTIMATORS,
        "agents, tabular": AGENTS,
        "agents, deep": DEEP_METHODS,
        "experiments": EXPERIMENTS,
    }
    for title, entries in kinds.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        for name, entry in entries.items():
            presets = ", ".join(getattr(entry, "presets", ()))
            table.add_row(f"  {name}", entry.summary + (f" (--preset {presets})" if presets else ""))
        terminal.print(table)
    return 0


def run_command(arguments: list[str]) -> int:
    """one experiment: `ubex run NAME`, the experiment's fields as flags; `--preset` for its ablations"""
    from ubex.experiments import command

    if not arguments or arguments[0] in ("-h", "--help"):
        print(command.usage())
        return 0 if arguments else BAD_INPUT
    found = command.understood(arguments)
    if found.renamed:
        print(f"ubex: {found.renamed}", file=sys.stderr)
    options = parse(command.run_options(found.experiment), found.words, f"ubex run {arguments[0]}")
    if found.chosen and not options.smoke:
        print(found.chosen)
    return run_experiment(options, ["ubex", "run", *arguments])


def run_experiment(options: Any, words: list[str]) -> int:
    """Runs what the options say, shows its tables and ends with the report page; `words` are the command itself."""
    from ubex.experiments.command import default_folder
    from ubex.report import html, tables
    from ubex.runs import runner

    experiment = options.experiment.smoke() if options.smoke else options.experiment
    experiment.ready()
    out = options.out or default_folder(experiment)
    terminal = console()
    summary = runner.run(experiment, out, terminal, options.how)
    for table in summary.tables:
        tables.show(table, terminal)
    terminal.print(f"results: {out / 'results.csv'}", markup=False, soft_wrap=True)
    if summary.interrupted:
        again = " ".join(words if options.out else [*words, "--out", str(out)])
        print(f"ubex: interrupted; to continue: {again}", file=sys.stderr)
    elif options.report:
        terminal.print(f"report:  {html.build(out)}", markup=False, soft_wrap=True)
    if summary.failed:
        print(f"ubex: {summary.failed} failed; the same command tries them again", file=sys.stderr)
    return summary.exit_code


def train_command(arguments: list[str]) -> int:
    """one agent on one environment: `ubex train --env module:Class --agent exact-ube`; --steps N if deep; --resume DIR"""
    from ubex.deep import presets
    from ubex.experiments import command
    from ubex.experiments.train import Train
    from ubex.experiments.train_deep import TrainDeep

    if any(word.split("=")[0] == "--resume" for word in arguments):
        return resume(arguments, {kind.name: kind for kind in (Train, TrainDeep)})
    deep = any(word.split("=")[0] == "--steps" for word in arguments)
    experiment: Any = TrainDeep(preset=presets.fitting()) if deep else Train()
    options = parse(command.run_options(experiment), arguments, "ubex train")
    options.experiment.make()  # a wrong environment is refused before anything is written
    if deep and not any(word.split("=")[0] == command.FLAG for word in arguments):
        print(presets.reason())
    return run_experiment(options, ["ubex", "train", *arguments])


def resume(arguments: list[str], kinds: Mapping[str, type[Any]]) -> int:
    """`ubex train --resume DIR`: the run in a folder goes on with the settings that it began with."""
    from ubex.runs import runner
    from ubex.runs.folder import read_spec

    options: Any = parse(
        dataclasses.make_dataclass(
            "ResumeOptions",
            [
                ("resume", Annotated[Path, tyro.conf.arg(help="Folder of the run; its settings are those it began with.")]),
                ("report", Annotated[bool, tyro.conf.arg(help="End with the report page.")], dataclasses.field(default=True)),
                ("how", Annotated[runner.Options, tyro.conf.arg(name="")], dataclasses.field(default_factory=runner.Options)),
            ],
        ),
        arguments,
        "ubex train",
    )
    spec = read_spec(options.resume)
    if spec["experiment"] not in kinds:
        raise InputError(f"{options.resume} holds the experiment {spec['experiment']}: `ubex run` continues it")
    experiment = kinds[spec["experiment"]](**spec["settings"])
    experiment.make()
    settled = RunSettled(experiment, options.resume, options.report, options.how)
    return run_experiment(settled, ["ubex", "train", *arguments])


@dataclass(frozen=True)
class RunSettled:
    """What `run_experiment` needs of a run that was described before."""

    experiment: Any
    out: Path
    report: bool
    how: Any
    smoke: bool = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `ubex evaluate`."""

    target: Annotated[Path, tyro.conf.Positional]
    """A folder of `ubex train --steps N`, or the file of a saved agent."""
    episodes: int = 10
    """Episodes of every agent."""
    seed: int | None = None
    """Seed of the environment."""
    video: bool = False
    """Leave the first episode of every agent as evaluation.gif next to its file."""


def evaluate_command(arguments: list[str]) -> int:
    """returns of trained deep agents with their mean actions: `ubex evaluate DIR --episodes 10 [--video]`"""
    from ubex.experiments.train_deep import AGENT_FILE
    from ubex.learn.agent import Agent
    from ubex.runs.store import ARTIFACTS, write_atomically

    options = parse(EvaluateOptions, arguments, "ubex evaluate")
    target = options.target
    files = [target] if target.is_file() else sorted(target.glob(f"{ARTIFACTS}/*/seed-*/{AGENT_FILE}"))
    if not files:
        raise InputError(f"there is no trained agent in {target}: `ubex train --steps N --out {target}` leaves one")
    for file in files:
        agent = Agent.load(file)
        name = file.parent.name if file != target else file.name
        if options.video:
            returns, film = agent.film(options.episodes, options.seed)
            write_atomically(file.with_name(VIDEO), film)
        else:
            returns = agent.evaluate(options.episodes, seed=options.seed)
        print(f"{name}: {agent!r}: mean {returns.mean():.6g}, sd {returns.std():.4g}, {options.episodes} episodes")
        if options.video:
            print(f"video: {file.with_name(VIDEO)}")
    return 0


@dataclass(frozen=True)
class ReportOptions:
    """Options of `ubex report`."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A run folder, or one that holds run folders."""
    markdown: Path | None = None
    """Also put the comparison with the published values into this Markdown file, between its two marks."""


def report_command(arguments: list[str]) -> int:
    """figures, tables and one self-contained HTML page from what is on disk: `ubex report DIR`"""
    from ubex.report import html, markdown

    options = parse(ReportOptions, arguments, "ubex report")
    print(html.build(options.folder))
    if options.markdown is not None:
        print(markdown.write(options.folder, options.markdown))
    return 0


def keep_command(arguments: list[str]) -> int:
    """the small part of a run, to be kept under results/: `ubex keep RUN [TARGET]`; --columns, --wide"""
    from ubex.runs.keep import Keep

    print(parse(Keep, arguments, "ubex keep")())
    return 0


def bench_command(arguments: list[str]) -> int:
    """measured ratios: `ubex bench tabular|deep [--json]`; `deep --env ID`: shares of a step in any environment"""
    from ubex.bench import deep, host, tabular

    suites: dict[str, type[Any]] = {"tabular": tabular.Tabular, "deep": deep.Deep}
    suite, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in suites else ("tabular", arguments)
    if suite == "deep" and any(word.split("=")[0] == "--env" for word in rest):
        suites["deep"] = host.Host  # the loop on the host, with somebody's environment
    if rest and not rest[0].startswith("-"):
        checks.one_of("bench", rest[0], suites)
    as_json, rest = "--json" in rest, [word for word in rest if word != "--json"]
    options = parse(suites[suite], rest, f"ubex bench {suite} [--json]")
    result = options(lambda text: print(f"measuring {text}", file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(result))
        return 0
    for name, found in result.items():
        for numbers in found if isinstance(found, list) else [found]:
            print(name)
            for quantity, value in numbers.items():
                print(f"  {quantity:<22} {value:.4g}" if isinstance(value, float) else f"  {quantity:<22} {value}")
    return 0


def doctor_command(arguments: list[str]) -> int:
    """checks the machine: versions, known-bad jaxlib, devices"""
    from ubex.doctor import examine

    parse(NoOptions, arguments, "ubex doctor")
    findings = examine()
    for finding in findings:
        print(f"{'ok ' if finding.ok else 'BAD'}  {finding.name:<14} {finding.detail}")
    bad = [finding.name for finding in findings if not finding.ok]
    print(f"\nnot fit: {', '.join(bad)}" if bad else "\nall good")
    return FAILED if bad else 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo_command,
    "list": list_command,
    "run": run_command,
    "train": train_command,
    "evaluate": evaluate_command,
    "report": report_command,
    "keep": keep_command,
    "bench": bench_command,
    "doctor": doctor_command,
}

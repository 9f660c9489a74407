"""The command line. Each command is a dataclass of its flags, or a function that makes one of what it has to import first.

Exit codes: 0 success, 1 a check or a run failed, 2 bad input (one line that names the value and the choices, no traceback).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Union

import tyro
from rich.console import Console
from rich.table import Table

from ubex import __version__, checks
from ubex.runs.disk import StorageError
from ubex.types import InputError

if TYPE_CHECKING:
    from ubex.experiments.command import RunFlags

VIDEO, DEBUG = "evaluation.gif", "--debug"
BAD_INPUT = 2
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `ubex`."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code. With `--debug` an error shows where it comes from."""
    debug = DEBUG in arguments
    arguments = [word for word in arguments if word != DEBUG]
    try:
        if arguments[:1] in (["-V"], ["--version"]):
            print(f"ubex {__version__}")
            return 0
        summaries = {name: first_line(command) for name, command in COMMANDS.items()}
        name, *words = chosen("command", arguments or ["--help"], summaries, "ubex")
        command = COMMANDS[name]
        return parse(command, words, f"ubex {name}")() if isinstance(command, type) else command(words)
    except SystemExit as stop:  # tyro has shown the help
        if stop.code:
            raise
        return 0
    except (InputError, StorageError) as error:
        if debug:
            traceback.print_exc()
        print(f"ubex: {error}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    except BrokenPipeError:  # the reader of our output went away, as in `ubex list | head -1`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("ubex: interrupted", file=sys.stderr)
        return 130


def chosen(what: str, words: list[str], summaries: Mapping[str, str], program: str) -> list[str]:
    """The words, the first of which names a subcommand. Where it names none, tyro shows the help or says what is missing.

    The flags of a subcommand are made after it was chosen, so that nobody waits for imports of the others.
    """
    if not words or words[0].startswith("-"):
        listed = (Annotated[Listed, tyro.conf.subcommand(name, description=text)] for name, text in summaries.items())
        text = f"`{program} {what.upper()} --help` shows every flag of one. With {DEBUG} an error shows where it comes from."
        parse(Union[tuple(listed)], words, program, text)  # noqa: UP007
    checks.one_of(what, words[0], summaries)
    return words


@dataclass(frozen=True)
class Listed:
    """Stands for a subcommand in the list of all."""


def first_line(thing: object) -> str:
    """What the docstring begins with."""
    return (thing.__doc__ or "").splitlines()[0]


def parse(kind: Any, arguments: list[str], program: str, text: str | None = None) -> Any:
    """Flags to a dataclass; tyro's framed messages become one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(kind, args=arguments, prog=program, description=text, config=(tyro.conf.DisallowNone,))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise SystemExit(0) from None
        raise InputError(f"{one_line(captured.getvalue())} (see `{program} --help`)") from None


def one_line(framed: str) -> str:
    """The sentence inside one of tyro's frames, without its title, the flag's help and the colours."""
    words = re.sub(r"\x1b\[[0-9;]*m|[│┃]", " ", framed)
    words = re.sub(r"\A.*\n *-+ *\n", "", words)  # the title, where the terminal has no lines but dashes
    lines = [line.strip() for line in words.splitlines() if not re.search(r"[─━╭╰]|^ *-* *$", line)]
    text = re.split(r"Argument helptext:|For full helptext|Got errors:|Perhaps you meant:", " ".join(lines))[0].strip()
    meant = re.findall(r"^(--[\w-]+)", "\n".join(lines), re.MULTILINE) if "Perhaps you meant:" in framed else []
    text += f" Perhaps you meant {' or '.join(dict.fromkeys(meant))}." if meant else ""
    return checks.cut(re.sub(r"\s+", " ", text), 400) or "bad options"


def console() -> Console:
    """Where people read: wide enough for tables when the output is a file."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)


@dataclass(frozen=True)
class Demo:
    """Run the main job on defaults, in minutes: Table 1, estimators against the truth, agents on DeepSea, and a report page."""

    out: Path = Path("runs/demo")
    """The folder for the results and figures."""

    def __call__(self) -> int:
        """Runs it."""
        from ubex.demo import demo

        demo(self.out, console())
        return 0


@dataclass(frozen=True)
class List:
    """List the environments, estimators, agents and experiments."""

    def __call__(self) -> int:
        """Prints them."""
        from ubex.deep.methods import DEEP_METHODS
        from ubex.envs import ENVS
        from ubex.envs.locomotion import LOCOMOTION
        from ubex.estimators import ESTIMATORS
        from ubex.experiments import EXPERIMENTS
        from ubex.tabular.agents import AGENTS

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
    """Run one experiment. Each of its fields is a flag, and `--preset` gives the defaults of its ablations."""
    from ubex.experiments import EXPERIMENTS, command

    share_memory(arguments)
    if not set(arguments[:1]) & set(EXPERIMENTS):  # the others are not imported
        chosen("experiment", arguments, command.summaries(arguments[:1]), "ubex run")
    name, *words = arguments
    if name in EXPERIMENTS and not EXPERIMENTS[name].presets and command.split(words)[0]:
        raise InputError(f"{name} has no presets, so it takes no --preset")
    found = command.understood(arguments)
    if found.renamed:
        print(f"ubex: {found.renamed}", file=sys.stderr)
    flags = parse(command.run_flags(found.experiment), found.words, f"ubex run {arguments[0]}")
    if found.chosen and not flags.run.smoke:
        print(found.chosen)
    return run_experiment(flags.experiment, flags.run, ["ubex", "run", *arguments])


def train_command(arguments: list[str]) -> int:
    """Train one agent on one environment of your choice, or go on with a run that was interrupted."""
    from ubex.experiments import training

    share_memory(arguments)
    experiment, flags, chosen = training.asked(parse(training.flags(), arguments, "ubex train"))
    experiment.make()  # a wrong environment is refused before anything is written
    if chosen:
        print(chosen)
    return run_experiment(experiment, flags, ["ubex", "train", *arguments])


def share_memory(arguments: Sequence[str]) -> None:
    """Where workers use a GPU, this process must leave its memory to them: JAX would take most of it at once."""
    if any(word.partition("=")[0] == "--workers" for word in arguments):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def run_experiment(experiment: Any, flags: RunFlags, words: list[str]) -> int:
    """Runs an experiment, shows its tables and ends with the report page; `words` are the command itself."""
    from ubex.experiments.command import default_folder
    from ubex.report import html, tables
    from ubex.runs import runner

    experiment = experiment.smoke() if flags.smoke else experiment
    experiment.ready()
    out = flags.out or default_folder(experiment)
    terminal = console()
    summary = runner.run(experiment, out, terminal, flags)
    for table in summary.tables:
        tables.show(table, terminal)
    terminal.print(f"results: {out / 'results.csv'}", markup=False, soft_wrap=True)
    if summary.interrupted:
        again = shlex.join(words if flags.out else [*words, "--out", str(out)])
        print(f"ubex: interrupted; to continue: {again}", file=sys.stderr)
    elif flags.report:
        terminal.print(f"report:  {html.build(out)}", markup=False, soft_wrap=True)
    if summary.failed:
        print(f"ubex: {summary.failed} failed; the same command tries them again", file=sys.stderr)
    return summary.exit_code


@dataclass(frozen=True)
class Evaluate:
    """Let trained agents act with their mean actions, or the best ones of a table, and print their returns."""

    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """A folder of `ubex train`, or the file of a saved agent."""
    episodes: int = 10
    """The number of episodes per agent."""
    seed: int | None = None
    """The seed of the environment."""
    video: bool = False
    """Leave the first episode of each agent as evaluation.gif next to its file."""
    env: str | None = None
    """The environment. It has to be given where it is code of your own, as module:Class: no file says what is imported."""
    horizon: int | None = None
    """The number of steps after which an episode is cut off. By default it is that of the training."""

    def __call__(self) -> int:
        """Evaluates every agent that is there."""
        from ubex.learn.agent import Agent
        from ubex.runs.disk import write_atomically

        blind = None
        for file in agents_at(self.target):
            agent = Agent.load(file, self.env, horizon=self.horizon)
            name, film = file.parent.name if file != self.target else file.name, None
            if self.video and blind is None:
                try:
                    returns, film = agent.film(self.episodes, self.seed)
                except InputError as error:  # the returns are wanted all the same
                    blind = error
            if film is None:
                returns = agent.evaluate(self.episodes, seed=self.seed)
            print(f"{name}: {agent!r}: mean {returns.mean():.6g}, sd {returns.std():.4g}, {self.episodes} episodes")
            if film is not None:
                write_atomically(file.with_name(VIDEO), film)
                print(f"video: {file.with_name(VIDEO)}")
        if blind is not None:
            raise InputError(f"no video: {blind}") from blind
        return 0


def agents_at(target: Path) -> list[Path]:
    """The file itself, or those of the agents that a run left; a line says why there are none."""
    from ubex.learn.agent import AGENT_FILE
    from ubex.runs import folder
    from ubex.runs.store import ARTIFACTS

    checks.path("TARGET", target)
    if target.is_file():
        return [target]
    if not target.exists():
        raise InputError(f"there is no file or folder {target}")
    if files := sorted(target.glob(f"{ARTIFACTS}/*/seed-*/{AGENT_FILE}")):
        return files
    if (runs := folder.run_folders(target)) != [target]:
        raise InputError(f"{target} is not a run but holds some: give {checks.cut(' or '.join(map(str, runs)), 400)}")
    run = folder.read(target)
    if run.done:
        raise InputError(f"the run {target} left no agent: `ubex train` does, except for an agent of your own, module:name")
    why = f" ({checks.cut(' '.join(run.failures[0].error.split()), 400)})" if run.failures else ""
    again = shlex.join(["ubex", "train", "--resume", str(target)]) if run.name.startswith("train") else "ubex run"
    raise InputError(f"no seed of the run {target} has finished{why}: `{again}` goes on with it")


@dataclass(frozen=True)
class Report:
    """Make figures, tables and one self-contained HTML page from what is on disk."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDERS")]
    """Run folders, or folders that hold run folders. Several share one page, and curves with the same axes one chart."""
    out: Path | None = None
    """The folder of the page. By default it is `report` in the folder, or in the one that holds all of them."""
    latex: bool = False
    """Also write every figure as PDF and every table as LaTeX (booktabs)."""
    markdown: Path | None = None
    """Also put the comparison with the published values into this Markdown file, between its two marks."""

    def __call__(self) -> int:
        """Makes them."""
        from ubex.report import html, markdown

        if not self.folders:
            raise InputError("report needs at least one run folder, as in `ubex report runs/toy`")
        print(html.build(*self.folders, out=self.out, document=self.latex, say=complain))
        if self.markdown is not None:
            first, *others = self.folders
            print(markdown.write(first, self.markdown, *others))
        return 0


def complain(line: str) -> None:
    """Says what is wrong, beside the output."""
    print(f"ubex: {line}", file=sys.stderr)


def keep_command(arguments: list[str]) -> int:
    """Keep the small part of a run, by default under results/."""
    from ubex.runs.keep import Keep

    print(parse(Keep, arguments, "ubex keep")())
    return 0


def bench_command(arguments: list[str]) -> int:
    """Measure ratios and rates: of tabular agents, of deep agents, or of a step in an environment of your choice."""
    from ubex.bench import deep, host, tabular

    suites: dict[str, type[Any]] = {"tabular": tabular.Tabular, "deep": deep.Deep, "host": host.Host}
    suite, *words = chosen("bench", arguments, {name: first_line(kind) for name, kind in suites.items()}, "ubex bench")
    try:
        options = parse(suites[suite], words, f"ubex bench {suite}")
    except InputError as error:
        if suite == "deep" and "--env" in str(error):
            raise InputError("`ubex bench deep --env ID` is now `ubex bench host --env ID`") from None
        raise
    result = options(lambda text: print(f"measuring {text}", file=sys.stderr, flush=True))
    if options.json:
        print(json.dumps(result))
        return 0
    for name, found in result.items():
        for numbers in found if isinstance(found, list) else [found]:
            print(name)
            for quantity, value in numbers.items():
                print(f"  {quantity:<22} {value:.4g}" if isinstance(value, float) else f"  {quantity:<22} {value}")
    return 0


@dataclass(frozen=True)
class Doctor:
    """Check the machine: versions, a jaxlib that is known to compute wrong numbers, and devices."""

    def __call__(self) -> int:
        """Prints every finding."""
        from ubex.doctor import examine

        findings = examine()
        for finding in findings:
            print(f"{'ok ' if finding.ok else 'BAD'}  {finding.name:<14} {finding.detail}")
        bad = [finding.name for finding in findings if not finding.ok]
        print(f"\nnot fit: {', '.join(bad)}" if bad else "\nall good")
        return FAILED if bad else 0


COMMANDS: Mapping[str, type[Any] | Callable[[list[str]], int]] = {
    "demo": Demo,
    "list": List,
    "run": run_command,
    "train": train_command,
    "evaluate": Evaluate,
    "report": Report,
    "keep": keep_command,
    "bench": bench_command,
    "doctor": Doctor,
}

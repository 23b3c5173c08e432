"""`tiphys train scaling`: scaling agents, from the fluid simulator, or on from a published one with what operators served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from tiphys_cli.train.transitions import pull, read_file
from tiphys_models.api.scaling_transition import Transition
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.domain.errors import InvalidInput, TiphysError
from tiphys_models.scaling.learned import load_agent


@dataclass(frozen=True, slots=True)
class ServedFrom:
    """Where transitions come from."""

    source: str
    """A file, or http://HOST:PORT of operators."""
    token_file: Path | None = None
    ca_file: Path | None = None
    """Who has signed the certificate of an https source; None: one of the system's."""
    policy: str = ""
    base: Path | None = None


def train_scaling(
    name: str, seeds: Sequence[int], out: Path, rounds: int | None, errors: Console, served: ServedFrom | None = None
) -> Path:
    """Train, judge by validation, write every seed's artifact and the best one's under the preset's name."""
    try:
        from tiphys_models.train.scaling.presets import PRESETS  # noqa: PLC0415
        from tiphys_models.train.scaling.trainer import train, write  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
    if name not in PRESETS:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join(PRESETS)}")
    if rounds is not None and rounds < 1:
        raise InvalidInput(f"--rounds wants a whole number from 1 on, it got {rounds}")
    if served is not None:
        return _go_on(name, seeds, out, rounds, errors, served)
    preset = PRESETS[name] if rounds is None else replace(PRESETS[name], rounds=rounds)
    results = []
    for seed in seeds:
        errors.print(f"{name}, seed {seed}")
        results.append(train(preset, seed, errors.print))
        write(out, f"{name}-{seed}", results[-1])
    best = min(results, key=lambda r: r.order)
    card = write(out, name, best, training_seeds=[r.evidence for r in results])
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {card}")
    return card


def _go_on(name: str, seeds: Sequence[int], out: Path, rounds: int | None, errors: Console, served: ServedFrom) -> Path:
    """From `--base`, else from what the last run left in `out`, else from the shipped weights."""
    from tiphys_models.train.scaling.presets import PRESETS  # noqa: PLC0415
    from tiphys_models.train.scaling.served import served_steps  # noqa: PLC0415
    from tiphys_models.train.scaling.trainer import CONTINUED_ROUNDS, continued, write  # noqa: PLC0415

    if name != "combined":
        raise InvalidInput(f"--from-transitions goes on with combined, not with {name}")
    left = out / f"scaling-{name}.json"
    base = served.base or (left if left.exists() else WEIGHTS / left.name)
    agent, preset = load_agent(base), PRESETS[name]
    if agent.name != name:
        raise InvalidInput(f"--base {base.name} holds {agent.name}, not {name}")
    steps = served_steps(_transitions(served, out, errors), agent, preset.gamma, preset.n_step)
    left_out = f"{steps.foreign} for other inputs, {steps.unlike} unlike any action, {steps.short} whose following windows are missing"
    errors.print(f"{len(steps)} steps to learn from; left out: {left_out}")
    if not len(steps):
        raise TiphysError("no step to learn from; policies with spec.agent.learning: Collect serve theirs")
    results = []
    for seed in seeds:
        errors.print(f"{name} from {base.name}, sha256 {agent.digest[:12]}, seed {seed}")
        results.append(continued(preset, seed, base, steps, errors.print, rounds or CONTINUED_ROUNDS))
    best = min(results, key=lambda r: r.order)
    if not best.sound:
        refused = write(out, f"{name}-refused", best)
        before = best.evidence["base_mean_cost_over_rule"]
        raise TiphysError(f"it costs {best.score:.4f} of the rule on validation, its base {before}: kept as {refused} and not published")
    card = write(out, name, best, training_seeds=[r.evidence for r in results])
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {card}")
    return card


def _transitions(served: ServedFrom, out: Path, errors: Console) -> Sequence[Transition]:
    if "://" not in served.source:
        found = read_file(Path(served.source))
        return [t for t in found if not served.policy or t.policy == served.policy]
    pulled = pull(served.source, served.token_file, served.policy, out, ca_file=served.ca_file)
    errors.print(
        f"{pulled.new} new transitions, {len(pulled.transitions)} in all; "
        f"{pulled.lost} were dropped since the last time, {pulled.before} before the first"
        + (f"; the oldest {pulled.forgotten} are forgotten now" if pulled.forgotten else "")
    )
    return pulled.transitions

"""The row of panels that every system has: who answered and why, what the other decider would have said, and how old the weights are."""

from __future__ import annotations

from dataclasses import replace

from tiphys_cli.observability.panels import Panel
from tiphys_cli.observability.queries import rate
from tiphys_models.seats.metrics import Service, metric_names
from tiphys_models.seats.record import System

_W = "$__rate_interval"
ENDS: dict[System, str] = {
    "selection": "Mean weighted cost of pods, as their intervals': less is better.",
    "scaling": "Mean loss of a window (minus its reward): less is better.",
    "streams": "Mean share of a stream's queries that were served in time: more is better.",
}
"""What the groups of a canary are compared by; how a placed pod ends is not known to the extender."""


def seat_row(service: Service, system: System, job: str) -> tuple[str, list[Panel]]:
    """Title and panels of the row of one system; `job` selects the processes that decide."""
    names = metric_names(service, system)
    answers, compared = names["answers"], names["compared"]
    fallbacks, due = f'outcome="fallback",{job}', f'outcome!="rule",{job}'
    same, known = f'would="same",{job}', f'would=~"same|other",{job}'
    panels = [
        Panel(
            "Answers by turn",
            "rule: its turn by mode, or the control group of a canary. learned: the learned decider was obeyed. fallback: the rule had to "
            "answer for it.",
            "reqps",
            ((rate(answers, _W, job, "outcome, group"), "{{outcome}} {{group}}"),),
            stacked=True,
        ),
        Panel(
            "Fallbacks by reason",
            "Why the rule had to answer for the learned decider.",
            "reqps",
            ((rate(answers, _W, fallbacks, "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Share of fallbacks",
            "Answers that the rule had to give, of all that were the learned decider's turn.",
            "percentunit",
            ((f"{rate(answers, _W, fallbacks)} / {rate(answers, _W, due)}", "fallbacks"),),
            thresholds=(("yellow", 0.05), ("red", 0.5)),
            maximum=1,
        ),
        Panel(
            "Rule against learned decider",
            "Share of answers for which the other one would have said the same, of those for which it has something to say.",
            "percentunit",
            ((f"{rate(compared, _W, same)} / {rate(compared, _W, known)}", "the same"),),
            maximum=1,
        ),
        Panel(
            "Age of weights",
            "How long the weights that serve have served, by model. Nothing is shown where rules decide.",
            "s",
            ((f"max by (model) (time() - {names['model']}{{{job}}})", "{{model}}"),),
        ),
    ]
    if system in ENDS:
        ended = f"{rate(names['ended_value'], _W, job, 'group')} / {rate(names['ended'], _W, job, 'group')}"
        description = ENDS[system] + " Groups of a canary beside each other; their difference with its interval stands in status."
        panels.insert(4, Panel("Groups compared", description, "short", ((ended, "{{group}}"),)))
    # one search finds a panel: titles of all dashboards differ
    named = [replace(panel, title=f"{system.capitalize()}: {panel.title[0].lower()}{panel.title[1:]}") for panel in panels]
    return f"Rule and learned decider: {system}", named

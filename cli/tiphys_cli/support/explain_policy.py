"""`tiphys explain sp/` and `scp/`: a policy's state, how rule and learned decider compare, and its last decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_cli.support.kinds import GOOD
from tiphys_models.seats.modes import mode_of

_GROUPS = {"all": "all answers", "treated": "treated, the learned decider obeyed", "control": "control, the rule obeyed"}


@dataclass(frozen=True, slots=True)
class PolicyExplanation:
    """Everything there is to say about one policy."""

    kind: str
    namespace: str
    name: str
    headline: str
    because: tuple[str, ...]
    """Full sentences, most important first."""
    records: tuple[Mapping[str, Any], ...]
    """The last decisions, newest first."""
    where: str
    """The process that said so; empty if none could be asked."""

    def as_json(self) -> dict[str, Any]:
        """The object that --json prints."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "headline": self.headline,
            "because": list(self.because),
            "records": [dict(record) for record in self.records],
            "operator": self.where,
        }


def policy_explanation(obj: Mapping[str, Any], items: Sequence[Mapping[str, Any]], where: str, problem: str = "") -> PolicyExplanation:
    """The explanation that an object and its records give, oldest first. `problem`: why there are no records to be had."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    kind, namespace, name = str(obj["kind"]), str(metadata["namespace"]), str(metadata["name"])
    records = tuple(reversed(items))
    because = [*_conditions(kind, status), *_comparisons(status)]
    if records:
        because.insert(0, _last(records[0]))
    elif problem:
        because.append(f"Its decisions could not be read: {problem}.")
    else:
        because.append(_no_records(kind, spec))
    return PolicyExplanation(kind, namespace, name, _headline(kind, f"{namespace}/{name}", spec, status), tuple(because), records, where)


def _headline(kind: str, key: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    mode = str(spec.get("mode") or "")
    said = f"{ready.get('reason')}: {ready.get('message')}" if ready is not None else "the operator has said nothing of it yet"
    return f"{kind} {key}{f', mode {mode}' if mode else ''}; {said}"


def _last(record: Mapping[str, Any]) -> str:
    """The newest decision in a sentence."""
    by, answer, would = record.get("by"), record.get("answer"), record.get("would")
    match record.get("outcome"), record.get("reason"):
        case "learned", _:
            turn = f"{by} decided"
        case "fallback", reason:
            turn = f"the learned decider could not or may not answer ({reason}), so {by} decided"
        case "rule", "shadow":
            turn = f"{by} decided, the learned decider was asked and not obeyed"
        case "rule", "control":
            turn = f"{by} decided for the control group"
        case _:
            turn = f"{by} decided"
    other = "" if not would else ", as the other one would have" if would == answer else f"; the other one would have said {would}"
    return f"Last, about {record.get('subject')}: {turn}: {answer}{other}."


def _conditions(kind: str, status: Mapping[str, Any]) -> list[str]:
    """Conditions that say no; Ready stands in the headline."""
    good = {word: status for word, status in GOOD[kind].items() if word != "Ready"}
    return [
        f"{c.get('type')} is {c.get('status')} ({c.get('reason')}): {c.get('message')}"
        for c in status.get("conditions") or ()
        if good.get(c.get("type"), c.get("status")) != c.get("status")
    ]


def _comparisons(status: Mapping[str, Any]) -> list[str]:
    """Sentences on what groups have shown so far, of the policy and of its `select`."""
    found = [status.get("comparison"), (status.get("selection") or {}).get("comparison")]
    return [sentence for comparison in found if comparison for sentence in comparison_sentences(comparison)]


def comparison_sentences(comparison: Mapping[str, Any]) -> list[str]:
    """A `comparison` of a status, in words."""
    sentences = []
    if (agreement := comparison.get("agreementPercent")) is not None:
        sentences.append(f"Rule and learned decider said the same in {agreement:g} % of {comparison.get('compared', 0)} answers.")
    for group, words in _GROUPS.items():
        found = comparison.get(group)
        if not found or found.get("mean") is None:
            continue
        error = f" ± {found['standardError']:.3g}" if found.get("standardError") is not None else ""
        sentences.append(f"{words}: {found['mean']:.4g}{error} over {found.get('ended', 0)} ({comparison.get('measure')}).")
    if (result := comparison.get("result")) is not None:
        difference = comparison.get("difference")
        width = comparison.get("plusMinus")
        figures = "" if difference is None else f", {difference:+.4g}" + (f" ± {width:.3g}" if width is not None else "")
        sentences.append(f"Treated against control: {result}{figures}.")
    return sentences


def _no_records(kind: str, spec: Mapping[str, Any]) -> str:
    mode = str(spec.get("mode") or "Shadow")
    if kind == "SchedulingPolicy" and spec.get("select") is None:
        return "It chooses nothing by intervals (no spec.select): ask about one of its pods with `tiphys explain pod/NAME`."
    try:
        off = mode_of(mode) == "Off"
    except ValueError:
        off = False
    return (
        "It is Off: nothing is decided." if off else "The operator keeps no decision of it: it has just started, or they are too long ago."
    )


def row_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table of decisions."""
    turn = str(record.get("outcome") or "")
    reason = str(record.get("reason") or "")
    return (
        str(record.get("subject") or ""),
        str(record.get("group") or ""),
        f"{turn}: {reason}" if reason else turn,
        str(record.get("by") or ""),
        str(record.get("answer") or ""),
        str(record.get("would") or "–"),
        str(record.get("ended") or "–"),
    )


COLUMNS = ("about", "group", "turn", "by", "answer", "other one", "ended")


def details_of(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Inputs and candidates of a decision, as lines."""
    detail = dict(record.get("detail") or {})
    shown = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in detail.items()}
    return [(key, str(value)) for key, value in shown.items() if value not in ("", None)]

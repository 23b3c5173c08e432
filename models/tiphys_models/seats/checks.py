"""The conformance suite: what every decider must keep, ours and those of other packages. It needs no test framework.

    from tiphys_models.seats.checks import assert_decider
    assert_decider(MyPolicy, "placement-policy")

A decider is given by its factory, the same object that an entry point names. Every system brings the questions of its kinds
(`Exam`); the checks are the same for all: it answers, validly, whatever it is asked; it answers the same question alike, also in
another process' order; it leaves the question as it was; it is in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Generic, TypeVar

from tiphys_models.base.errors import InvalidInput

KINDS: Mapping[str, str] = {
    "placement-policy": "tiphys_models.placement.exam",
    "planner": "tiphys_models.selection.exam",
    "selector": "tiphys_models.selection.exam",
    "scaling-agent": "tiphys_models.scaling.exam",
    "stream-policy": "tiphys_models.streams.exam",
}
"""Kind -> module whose `EXAMS` has its questions; imported by name, for the systems are built on this package."""
_RUNS = 5

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Exam(Generic[Q, A]):
    """What deciders of one kind are asked, and what an answer must be."""

    make: Callable[[Any], Any]
    """(factory) -> a decider that has answered nothing yet."""
    ask: Callable[[Any, Q], A]
    """(decider, question) -> its answer."""
    questions: Callable[[], Mapping[str, Q]]
    """Function that makes the questions, each named after what is special about it; made anew at every call, always alike."""
    fault: Callable[[Q, A], str]
    """What is wrong with an answer; empty: nothing."""
    same: Callable[[A, A], bool]
    """Whether two answers are the same decision."""
    trace: Callable[[Q], bytes]
    """Another one when anything in the question was changed."""
    large: Callable[[], Q]
    """A question as large as a large cluster's."""
    budget_s: float
    """A large question may take so long, at the median of five."""
    permuted: Callable[[Q], tuple[Q, Callable[[A], A]]] | None = None
    """A question with its candidates in another order, and how its answer is put back; None where their order may count."""
    further: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Checks of this kind alone: (factory) -> what is wrong, or nothing."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How one check ended."""

    name: str
    fault: str
    """What is wrong; empty if the check holds."""
    took_s: float

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.fault


class DeciderFailed(AssertionError):
    """A decider does not keep what every decider must; the message lists every check that failed."""


def exam_of(kind: str) -> Exam[Any, Any]:
    """The questions of a kind; InvalidInput if there is no such kind."""
    if kind not in KINDS:
        raise InvalidInput(f"no kind of decider is called {kind!r}: there are {', '.join(KINDS)}")
    found: Exam[Any, Any] = import_module(KINDS[kind]).EXAMS[kind]
    return found


def check_decider(factory: Callable[..., object], kind: str) -> Iterator[Checked]:
    """Every check of a kind, one after the other. Nothing is raised but for a kind that does not exist."""
    exam = exam_of(kind)
    for name, check in checks_of(exam).items():
        started_s = time.perf_counter()
        try:
            fault = check(factory)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a decider raises is a finding, not the end of the suite
            fault = f"{type(error).__name__}: {error}"
        yield Checked(name, fault, time.perf_counter() - started_s)


def assert_decider(factory: Callable[..., object], kind: str, exempt: Collection[str] = ()) -> None:
    """DeciderFailed lists the checks that do not hold; those of `exempt` may fail, and must: an exemption that is not needed is one too."""
    ended = list(check_decider(factory, kind))
    wrong = [f"{c.name}: {c.fault}" for c in ended if not c.holds and c.name not in exempt]
    wrong += [f"{c.name}: holds, so its exemption is to be removed" for c in ended if c.holds and c.name in exempt]
    wrong += [f"{name}: there is no such check" for name in exempt if name not in {c.name for c in ended}]
    if wrong:
        raise DeciderFailed("\n".join(wrong))


def checks_of(exam: Exam[Any, Any]) -> dict[str, Callable[[Any], str]]:
    """Check by name: (factory) -> what is wrong, or nothing."""
    answers = {f"answers {name}": _answers(exam, name) for name in exam.questions()}
    common: dict[str, Callable[[Any], str]] = {
        "is deterministic": partial(_deterministic, exam),
        "leaves questions as they were": partial(_pure, exam),
        "keeps nothing between questions": partial(_memoryless, exam),
        "is in time": partial(_in_time, exam),
    }
    if exam.permuted is not None:
        common["ignores the order of candidates"] = partial(_orderless, exam, exam.permuted)
    return {**answers, **common, **exam.further}


def _answers(exam: Exam[Any, Any], name: str) -> Callable[[Any], str]:
    def check(factory: Any) -> str:
        question = exam.questions()[name]
        return exam.fault(question, exam.ask(exam.make(factory), question))

    return check


def _deterministic(exam: Exam[Any, Any], factory: Any) -> str:
    first, second = exam.make(factory), exam.make(factory)
    for (name, question), other in zip(exam.questions().items(), exam.questions().values(), strict=True):
        if not exam.same(exam.ask(first, question), exam.ask(second, other)):
            return f"two of them answer differently when asked {name}"
    return ""


def _memoryless(exam: Exam[Any, Any], factory: Any) -> str:
    """A restart, a replica and a simulator begin afresh: what came before must not matter."""
    used = exam.make(factory)
    for question in exam.questions().values():
        exam.ask(used, question)
    for name, question in reversed(list(exam.questions().items())):
        if not exam.same(exam.ask(used, question), exam.ask(exam.make(factory), question)):
            return f"{name} is answered differently once other questions were answered"
    return ""


def _pure(exam: Exam[Any, Any], factory: Any) -> str:
    decider = exam.make(factory)
    for name, question in exam.questions().items():
        before = exam.trace(question)
        exam.ask(decider, question)
        if exam.trace(question) != before:
            return f"it changes the question when asked {name}"
    return ""


def _orderless(exam: Exam[Any, Any], permuted: Callable[[Any], tuple[Any, Callable[[Any], Any]]], factory: Any) -> str:
    decider = exam.make(factory)
    for name, question in exam.questions().items():
        other, back = permuted(question)
        if not exam.same(exam.ask(decider, question), back(exam.ask(decider, other))):
            return f"another order of the candidates leads to another answer when asked {name}"
    return ""


def _in_time(exam: Exam[Any, Any], factory: Any) -> str:
    decider, question = exam.make(factory), exam.large()
    exam.ask(decider, question)  # what is loaded or put together once is not counted
    took_s = []
    for _ in range(_RUNS):
        started_s = time.thread_time()  # of this thread alone: other work on the machine is not the decider's fault
        exam.ask(decider, question)
        took_s.append(time.thread_time() - started_s)
    median_s = sorted(took_s)[_RUNS // 2]
    return (
        "" if median_s <= exam.budget_s else f"a large question takes {1000 * median_s:.0f} ms, {1000 * exam.budget_s:.0f} ms are allowed"
    )

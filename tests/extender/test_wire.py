"""Bytes in, bytes out: nothing we send may be rejected by Go's decoder, nothing sent to us may make a mess."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extender.harness import Extender, arguments, check_contract, decode_as_go, pod_json
from tests.levels import levels
from tiphys_extender.serve.wire import BAD_REQUEST_REASONS, BadRequest, encode_neutral, encode_ranked, parse_call, segments

# The smallest request a real scheduler sends: containers may be null.
SMALLEST = b'{"Pod":{"metadata":{"name":"p"},"spec":{"containers":null},"status":{}},"Nodes":null,"NodeNames":["a","b","c"]}'


def test_the_smallest_real_request_is_answered_byte_for_byte() -> None:
    extender = Extender(nodes=0)
    answer = extender.answerer.prioritize(SMALLEST)
    assert answer == b'[{"Host":"a","Score":5},{"Host":"b","Score":5},{"Host":"c","Score":5}]'


def test_a_ranked_answer_is_pinned_byte_for_byte() -> None:
    assert encode_ranked(["best", "b", "c"], plain=True) == (b'[{"Host":"best","Score":10},{"Host":"b","Score":9},{"Host":"c","Score":4}]')
    assert encode_ranked(['qu"ote', "ü"], plain=False) == '[{"Host":"qu\\"ote","Score":10},{"Host":"ü","Score":9}]'.encode()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (SMALLEST, ["a", "b", "c"]),
        (b'{"pod":{},"nodes":null,"nodenames":["a","b"]}', ["a", "b"]),
        (b'{"POD":{},"NODENAMES":["a"]}', ["a"]),
        (b'{"Pod":{},"NodeNames":null,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"x"}},{"metadata":{"name":"y"}}]}}', ["x", "y"]),
        (b'{"Pod":{},"Nodes":{"items":null}}', []),
        (b'{"Pod":{},"Nodes":{"items":[{"metadata":{},"spec":{}},{"metadata":{"name":"y"}}]}}', ["", "y"]),
        (b'{"Pod":{},"NodeNames":[]}', []),
        (b'{"Pod":{},"NodeNames":["one"]}', ["one"]),
        (b'{"Pod":{},"NodeNames":["a","b","a","a"]}', ["a", "b"]),
        (b'{"NodeNames":["a","b"]}', ["a", "b"]),
        (b'{"Pod":null,"NodeNames":["a","b"]}', ["a", "b"]),
        (b'{"Pod":[1,2],"NodeNames":["a","b"]}', ["a", "b"]),
        (b'{"Pod":{"metadata":{"labels":[]}},"NodeNames":["a","b"]}', ["a", "b"]),
        (b'{"Pod":{"metadata":{},"spec":{"containers":7}},"NodeNames":["a","b"]}', ["a", "b"]),
        (b'{"Pod":{"metadata":{},"spec":{"containers":[{"resources":{"requests":{"cpu":"lots"}}}]}},"NodeNames":["a"]}', ["a"]),
        ('{"Pod":{},"NodeNames":["q\\"uote","ü","\\u0000","\\\\","","日本"]}'.encode(), ['q"uote', "ü", "\0", "\\", "", "日本"]),
    ],
    ids=lambda value: value.decode("utf-8", "replace")[:60] if isinstance(value, bytes) else "",
)
def test_readable_names_always_get_a_full_answer(body: bytes, names: list[str]) -> None:
    extender = Extender(nodes=2)
    answer = extender.answerer.prioritize(body)
    extender.answerer.settle()
    check_contract(answer, names)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not-json"),
        (b"{", "not-json"),
        (b"[]", "not-an-object"),
        (b"null", "not-an-object"),
        (b'"x"', "not-an-object"),
        (b"{}", "no-names"),
        (b'{"Pod":{},"Nodes":null,"NodeNames":null}', "no-names"),
        (b'{"Pod":{},"Nodes":[1]}', "no-names"),
        (b'{"Pod":{},"Nodes":{"items":[{}]}}', "bad-names"),
        (b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":4}}]}}', "bad-names"),
        (b'{"Pod":{},"Nodes":{"items":[{"metadata":[]}]}}', "bad-names"),
        (b'{"Pod":{},"Nodes":{"items":7}}', "bad-names"),
        (b'{"Pod":{},"NodeNames":"a"}', "bad-names"),
        (b'{"Pod":{},"NodeNames":["a",1]}', "bad-names"),
        (b'{"Pod":{},"NodeNames":["a",["b"]]}', "bad-names"),
        (b'{"Pod":{},"NodeNames":["a",null]}', "bad-names"),
        (b'{"Pod":{},"NodeNames":["\xff\xfe"]}', "not-json"),
        (b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b',"NodeNames":["a"]}', "not-json"),
        (b'{"Pod":{},"NodeNames":["a"]} trailing', "not-json"),
        (b'{"Pod":{},"NodeNames":["a"],"x":NaN}', "not-json"),
    ],
    ids=lambda value: value[:40].decode("utf-8", "replace") if isinstance(value, bytes) else str(value),
)
def test_unreadable_names_are_refused_with_a_reason(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_call(body)
    assert caught.value.reason == reason
    assert caught.value.status == 400


def test_a_megabyte_of_labels_is_answered() -> None:
    extender = Extender(nodes=3)
    labels = {f"label-{i}": "v" * 1000 for i in range(1000)}
    body = json.dumps(arguments(["n0", "n1", "n2"], metadata={"labels": labels})).encode()
    assert len(body) > 1_000_000
    answer = extender.answerer.prioritize(body)
    check_contract(answer, ["n0", "n1", "n2"])


@given(st.integers(0, 700))
def test_runs_of_equal_scores_are_the_levels_of_the_ranking(count: int) -> None:
    spread = [score for first, end, score in segments(count) for _ in range(end - first)]
    assert spread == levels(np.arange(count)).tolist()


any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=15,
)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
node_names = st.lists(st.sampled_from([f"n{i}" for i in range(12)]) | texts, max_size=40)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A request whose names can be read, about anything."""
    names = draw(node_names)
    pod = draw(
        st.builds(pod_json, uid=texts, namespace=st.sampled_from(["default", "faas", "kube-system", "canary"]), function=texts) | any_json
    )
    args: dict[str, Any] = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return orjson.dumps(args), names


@given(requests())
@settings(max_examples=400, deadline=None)
def test_no_answer_can_be_rejected_by_go(request: tuple[bytes, list[str]]) -> None:
    body, names = request
    extender = EXTENDER
    answer = extender.answerer.prioritize(body)
    extender.answerer.settle()
    check_contract(answer, names)


@given(st.lists(texts, unique=True, max_size=60))
def test_every_name_survives_encoding(names: list[str]) -> None:
    joined = "".join(names)
    plain = len(orjson.dumps(joined)) == len(joined) + 2
    assert [e["Host"] for e in decode_as_go(encode_ranked(names, plain=plain))] == names
    assert [e["Host"] for e in decode_as_go(encode_neutral(names, plain=plain))] == names
    scores = [e["Score"] for e in decode_as_go(encode_ranked(names, plain=plain))]
    assert scores == sorted(scores, reverse=True)
    assert scores.count(10) == min(1, len(names))


@given(any_json)
@settings(deadline=None)
def test_any_json_is_answered_or_refused_with_a_reason(content: Any) -> None:
    try:
        answer = EXTENDER.answerer.prioritize(orjson.dumps(content))
    except BadRequest as bad:
        refused = bad.reason, bad.status
    else:
        EXTENDER.answerer.settle()
        decode_as_go(answer)
        return
    assert refused in ((reason, 400) for reason in ("not-an-object", "no-names", "bad-names"))


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_refused_with_a_reason(body: bytes) -> None:
    try:
        call = parse_call(body)
    except BadRequest as bad:
        refused = bad.reason
    else:
        assert all(isinstance(name, str) for name in call.names)
        return
    assert refused in BAD_REQUEST_REASONS


def _world_of_everything() -> Extender:
    from tests.builders import policy_object

    policies = [
        policy_object("a", "default", mode="Active", policy="least-connections", guardrails={"maxNodeSharePercent": 30}),
        policy_object("b", "faas", mode="Active", policy="static-rank", fallback="hashing"),
        policy_object("c", "canary", mode="Canary", policy="round-robin", canary={"percent": 50}),
    ]
    extender = Extender(nodes=8, policies=policies)
    extender.read(cpu_load_avg={"n3": 9.0})
    return extender


EXTENDER = _world_of_everything()

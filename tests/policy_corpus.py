"""Specs that must be taken and specs that must not: the same for the pydantic model (unit) and for the API server (e2e)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LONG = "x" * 64


def _labels(count: int) -> dict[str, str]:
    return {f"l{index}": "v" for index in range(count)}


def _line(**changes: Any) -> dict[str, Any]:
    return {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]} | changes]}}


def _without(*keys: str) -> dict[str, Any]:
    line = {"key": "app", "operator": "In", "values": ["x"]}
    return {"selector": {"matchExpressions": [{k: v for k, v in line.items() if k not in keys}]}}


CANARY = {"mode": "Canary", "canary": {"percent": 10}}

# name: (spec, what the API server's message must mention)
BAD_SPECS: dict[str, tuple[Any, str]] = {
    "no spec": (None, "spec"),
    "spec is a string": ("Active", "spec"),
    "spec is a list": ([], "spec"),
    "unknown mode": ({"mode": "On"}, "spec.mode"),
    "mode in lower case": ({"mode": "active"}, "spec.mode"),
    "Off without quotes is false": ({"mode": False}, "spec.mode"),
    "mode is empty": ({"mode": ""}, "spec.mode"),
    "mode is a number": ({"mode": 1}, "spec.mode"),
    "policy that no name can be": ({"policy": "the best"}, "spec.policy"),
    "policy ends with a dash": ({"policy": "best-"}, "spec.policy"),
    "policy is empty": ({"policy": ""}, "spec.policy"),
    "policy name too long": ({"policy": LONG}, "spec.policy"),
    "policy by class name": ({"policy": "FaaSRank"}, "spec.policy"),
    "policy is a list": ({"policy": ["greedy"]}, "spec.policy"),
    "unknown fallback": ({"fallback": "none"}, "spec.fallback"),
    "learned fallback": ({"fallback": "faasrank"}, "fallback must be a rule"),
    "learned fallback of a learned policy": ({"policy": "faasrank", "fallback": "faasrank"}, "fallback must be a rule"),
    "model without a learned policy": ({"policy": "greedy", "model": "m"}, "model belongs to a learned policy"),
    "model with the default policy": ({"model": "m"}, "model belongs to a learned policy"),
    "empty model": ({"policy": "faasrank", "model": ""}, "spec.model"),
    "model in capitals": ({"policy": "faasrank", "model": "Mine"}, "spec.model"),
    "model with a path": ({"policy": "faasrank", "model": "../etc/passwd"}, "spec.model"),
    "model with a slash": ({"policy": "faasrank", "model": "a/b"}, "spec.model"),
    "model ends with a dash": ({"policy": "faasrank", "model": "a-"}, "spec.model"),
    "model too long": ({"policy": "faasrank", "model": LONG}, "spec.model"),
    "model is a number": ({"policy": "faasrank", "model": 7}, "spec.model"),
    "canary without percent": ({"mode": "Canary", "canary": {}}, "spec.canary.percent"),
    "Canary without canary": ({"mode": "Canary"}, "set both or neither"),
    "canary without Canary": ({"canary": {"percent": 5}}, "set both or neither"),
    "canary while Active": ({"mode": "Active", "canary": {"percent": 5}}, "set both or neither"),
    "canary of 0 percent": ({"mode": "Canary", "canary": {"percent": 0}}, "spec.canary.percent"),
    "canary of 100 percent": ({"mode": "Canary", "canary": {"percent": 100}}, "spec.canary.percent"),
    "canary of a fraction": ({"mode": "Canary", "canary": {"percent": 0.5}}, "spec.canary.percent"),
    "canary with a sign": ({"mode": "Canary", "canary": {"percent": "10%"}}, "spec.canary.percent"),
    "canary is a number": ({"mode": "Canary", "canary": 10}, "spec.canary"),
    "canary percent is true": ({"mode": "Canary", "canary": {"percent": True}}, "spec.canary.percent"),
    "readings never age": ({"guardrails": {"maxReadingAgeSeconds": 0}}, "spec.guardrails.maxReadingAgeSeconds"),
    "readings of a day": ({"guardrails": {"maxReadingAgeSeconds": 86400}}, "spec.guardrails.maxReadingAgeSeconds"),
    "reading age with a unit": ({"guardrails": {"maxReadingAgeSeconds": "60s"}}, "spec.guardrails.maxReadingAgeSeconds"),
    "no node may hold anything": ({"guardrails": {"maxNodeSharePercent": 0}}, "spec.guardrails.maxNodeSharePercent"),
    "share above everything": ({"guardrails": {"maxNodeSharePercent": 101}}, "spec.guardrails.maxNodeSharePercent"),
    "huge share": ({"guardrails": {"maxNodeSharePercent": 10**9}}, "spec.guardrails.maxNodeSharePercent"),
    "negative share": ({"guardrails": {"maxNodeSharePercent": -1}}, "spec.guardrails.maxNodeSharePercent"),
    "guardrails is a list": ({"guardrails": []}, "spec.guardrails"),
    "hints is a list": ({"hints": []}, "spec.hints"),
    "a hint is a number of seconds": ({"hints": {"doNotDisrupt": 95}}, "spec.hints.doNotDisrupt"),
    "selector is a string": ({"selector": "app=x"}, "spec.selector"),
    "labels are a list": ({"selector": {"matchLabels": ["app"]}}, "spec.selector.matchLabels"),
    "label value is a number": ({"selector": {"matchLabels": {"app": 1}}}, "spec.selector.matchLabels"),
    "label value with a space": ({"selector": {"matchLabels": {"app": "a b"}}}, "spec.selector.matchLabels"),
    "label value too long": ({"selector": {"matchLabels": {"app": LONG}}}, "spec.selector.matchLabels"),
    "label value ends with a dot": ({"selector": {"matchLabels": {"app": "a."}}}, "spec.selector.matchLabels"),
    "empty label key": ({"selector": {"matchLabels": {"": "x"}}}, "keys must be label keys"),
    "label key with a space": ({"selector": {"matchLabels": {"my app": "x"}}}, "keys must be label keys"),
    "label key with two slashes": ({"selector": {"matchLabels": {"a/b/c": "x"}}}, "keys must be label keys"),
    "label key too long": ({"selector": {"matchLabels": {LONG: "x"}}}, "keys must be label keys"),
    "label prefix in capitals": ({"selector": {"matchLabels": {"Example.com/app": "x"}}}, "keys must be label keys"),
    "too many labels": ({"selector": {"matchLabels": _labels(65)}}, "spec.selector.matchLabels"),
    "too many lines": ({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 65}}, "spec.selector.matchExpressions"),
    "line without key": (_without("key"), "key"),
    "line without operator": (_without("operator"), "operator"),
    "unknown operator": (_line(operator="Equals"), "operator"),
    "operator in lower case": (_line(operator="in"), "operator"),
    "In without values": (_without("values"), "values belong to the operators In and NotIn"),
    "NotIn with an empty list": (_line(operator="NotIn", values=[]), "values belong to the operators In and NotIn"),
    "Exists with values": (_line(operator="Exists"), "values belong to the operators In and NotIn"),
    "DoesNotExist with values": (_line(operator="DoesNotExist"), "values belong to the operators In and NotIn"),
    "too many values": (_line(values=[f"v{index}" for index in range(65)]), "values"),
    "values is a string": (_line(values="x"), "values"),
    "value too long": (_line(values=[LONG]), "values"),
    "value is a number": (_line(values=[1]), "values"),
    "bad key in a line": (_line(key="a b"), "key"),
    "policy beside select": ({"policy": "greedy", "select": {"by": "preview"}}, "exclude"),
    "model beside select": ({"model": "m", "select": {"by": "preview"}}, "model"),
    "select by nobody": ({"select": {}}, "by"),
    "selector that no name can be": ({"select": {"by": "Meta_Net"}}, "by"),
    "one candidate": ({"select": {"by": "ucb", "among": ["greedy"]}}, "among"),
    "candidate that no name can be": ({"select": {"by": "ucb", "among": ["greedy", "first fit"]}}, "among"),
    "a candidate twice": ({"select": {"by": "ucb", "among": ["greedy", "greedy"]}}, "among"),
    "interval too short": ({"select": {"by": "ucb", "intervalSeconds": 1}}, "intervalSeconds"),
    "margin over 100": ({"select": {"by": "ucb", "marginPercent": 101}}, "marginPercent"),
    "no weight": ({"select": {"by": "ucb", "weights": {"cost": 0, "energy": 0, "response": 0, "sla": 0}}}, "weight"),
    "select in Canary without its share": ({"select": {"by": "ucb", "mode": "Canary"}}, "canary belongs to mode Canary"),
    "select with a share without Canary": ({"select": {"by": "ucb", "canary": {"percent": 5}}}, "canary belongs to mode Canary"),
    "select with a block that is all wash-out": (
        {"select": {"by": "ucb", "mode": "Canary", "canary": {"percent": 5, "blockIntervals": 3, "washOutIntervals": 3}}},
        "washOutIntervals must be below blockIntervals",
    ),
    "select with a rule that is no candidate": ({"select": {"by": "ucb", "rule": "gobi"}}, "rule must be one of among"),
    "select in an unknown mode": ({"select": {"by": "ucb", "mode": "On"}}, "mode"),
    "null in a list": (_line(values=[None]), "values"),
}

GOOD_SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "every mode but Canary": {"mode": "Off"},
    "canary": CANARY,
    "canary of 1 percent": {"mode": "Canary", "canary": {"percent": 1}},
    "canary of 99 percent": {"mode": "Canary", "canary": {"percent": 99}},
    "whole number as a float": {"mode": "Canary", "canary": {"percent": 5.0}},
    "learned without a model's name": {"policy": "faasrank"},
    "learned with a model": {"policy": "faasrank", "model": "team-a.v2", "fallback": "round-robin"},
    "guardrails": {"guardrails": {"maxReadingAgeSeconds": 5, "maxNodeSharePercent": 1}},
    "empty guardrails": {"guardrails": {}},
    "hints": {"mode": "Active", "hints": {"doNotDisrupt": True, "deletionCost": False}},
    "empty hints": {"hints": {}},
    "select in Shadow": {"select": {"by": "ucb", "mode": "Shadow", "rule": "energy-lean"}},
    "select in Canary": {"select": {"by": "ucb", "mode": "Canary", "canary": {"percent": 50}}},
    "select with defaults": {"select": {"by": "preview"}},
    "select with everything": {
        "mode": "Active",
        "select": {
            "by": "ucb",
            "among": ["gosh", "cost-lean", "faasrank"],
            "intervalSeconds": 30,
            "marginPercent": 0,
            "maxSwitchesPerHour": 0,
            "freeze": True,
            "slaFactor": 2,
            "weights": {"cost": 1, "energy": 0, "response": 0, "sla": 0},
        },
    },
    "empty selector": {"selector": {}},
    "empty label value": {"selector": {"matchLabels": {"app": ""}}},
    "prefixed key": {"selector": {"matchLabels": {"app.kubernetes.io/name": "x_1.y-2"}}},
    "64 labels": {"selector": {"matchLabels": _labels(64)}},
    "all operators": {
        "selector": {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", ""]},
                {"key": "b", "operator": "NotIn", "values": ["y"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist", "values": []},
            ]
        }
    },
    "null is nothing": {"mode": None, "canary": None, "selector": None, "guardrails": {"maxNodeSharePercent": None}},
    "null among labels is nothing": {"selector": {"matchLabels": {"app": None}}},
    "unknown fields are left out": {"colour": "red", "canary": None},
}

_words = st.sampled_from(["", "x", "faasrank", "warm-first", "Canary", "Off", "In", "Exists", "a/b", "a b", "A", "a-", LONG, "0"])
_scalars = st.none() | st.booleans() | st.integers(-2, 130) | st.sampled_from([0.5, 5.0, 10**9, 2**40]) | _words
_label_maps = st.dictionaries(st.sampled_from(["app", "", "a b", "x.io/a", "X.io/a", LONG]), _scalars, max_size=2)


def _mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly sensible, sometimes anything: otherwise nearly every spec would be bad for the first of its fields."""
    return st.integers(0, 9).flatmap(lambda roll: _scalars if roll == 0 else good)


_lines = st.fixed_dictionaries(
    {"key": _mostly(st.sampled_from(["app", "x.io/a"])), "operator": _mostly(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))},
    optional={"values": _mostly(st.lists(_mostly(st.sampled_from(["x", ""])), max_size=2))},
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "mode": _mostly(st.sampled_from(["Off", "Shadow", "Canary", "Active"])),
        "policy": _mostly(st.sampled_from(["hashing", "greedy", "faasrank", "warm-first"])),
        "fallback": _mostly(st.sampled_from(["hashing", "warm-first", "faasrank"])),
        "model": _mostly(st.sampled_from(["m", "faasrank"])),
        "canary": _mostly(st.fixed_dictionaries({}, optional={"percent": _mostly(st.integers(1, 99))})),
        "guardrails": _mostly(
            st.fixed_dictionaries(
                {}, optional={"maxReadingAgeSeconds": _mostly(st.integers(5, 60)), "maxNodeSharePercent": _mostly(st.integers(1, 100))}
            )
        ),
        "selector": _mostly(
            st.fixed_dictionaries({}, optional={"matchLabels": _label_maps, "matchExpressions": st.lists(_lines, max_size=2)})
        ),
        "colour": _scalars,
    },
)
"""Specs as somebody might write them, some of them bad."""

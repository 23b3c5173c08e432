from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiphys_extender.streams.tokens import Counts, Grant, KeyFile, Keys, TokenRefused
from tiphys_models.base.errors import InvalidInput

OLD, NEW = ("2026-10", "o" * 40), ("2026-11", "n" * 40)
GRANT = Grant("stream-1", "edge", "platform", "edge/yolo", 12.5, 10.0, 100.0, 33.25, "score", "ab", 1e9, 1e9 + 10, Counts(5, 1, 0))


def test_a_token_says_what_was_signed() -> None:
    keys = Keys.of([NEW])
    assert keys.read(keys.sign(GRANT)) == GRANT
    assert keys.read(keys.sign(GRANT)).counts.late == 1


def test_a_new_key_signs_while_the_old_one_is_still_believed_and_not_afterwards() -> None:
    before, during, after = Keys.of([OLD]), Keys.of([NEW, OLD]), Keys.of([NEW])
    assert during.read(before.sign(GRANT)) == GRANT
    assert after.read(during.sign(GRANT)) == GRANT
    with pytest.raises(TokenRefused, match="key that this binder does not have"):
        after.read(before.sign(GRANT))


def test_binders_may_be_a_step_apart_while_a_key_rotates() -> None:
    """The new key behind the old one everywhere, then before it, then alone: each kubelet shows its pods a changed Secret in its own time."""
    steps = [Keys.of(keys) for keys in ([OLD], [OLD, NEW], [NEW, OLD], [NEW])]
    for one, other in pairwise(steps):
        assert other.read(one.sign(GRANT)) == one.read(other.sign(GRANT)) == GRANT


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(min_value=0), st.integers(0, 255))
def test_no_changed_byte_is_believed(where: int, byte: int) -> None:
    keys = Keys.of([NEW])
    token = bytearray(keys.sign(GRANT).encode())
    place = where % len(token)
    if token[place] == byte:
        return
    token[place] = byte
    with pytest.raises(TokenRefused):
        keys.read(token.decode("latin-1"))


def test_more_load_cannot_be_claimed_by_whoever_has_no_key() -> None:
    body, _, mac = Keys.of([NEW]).sign(GRANT).partition(".")
    fields = json.loads(urlsafe_b64decode(body))
    fields[fields.index(12.5)] = 0.001
    forged = urlsafe_b64encode(json.dumps(fields).encode()).decode() + "." + mac
    with pytest.raises(TokenRefused, match="signature"):
        Keys.of([NEW]).read(forged)


@pytest.mark.parametrize(
    "text", ["", ".", "a.b", "e30=.", "WyJr.x", "é" * 50, "W10=.", "x" * 3000, urlsafe_b64encode(b"[[]]").decode() + ".x"]
)
def test_whatever_else_is_sent_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        Keys.of([NEW]).read(text)


def keys_file(path: Path, *keys: tuple[str, str]) -> Path:
    path.write_text(json.dumps({"keys": [{"id": name, "secret": secret} for name, secret in keys]}))
    return path


def test_keys_are_read_again_when_the_file_changes_and_a_broken_one_leaves_the_last_good_ones(tmp_path: Path) -> None:
    path = keys_file(tmp_path / "keys", OLD)
    file = KeyFile(path)
    assert not file.reload_if_changed()
    keys_file(path, NEW, OLD)
    assert file.reload_if_changed()
    assert file.keys.signing == NEW[0]
    path.write_text("{")
    assert not file.reload_if_changed()
    assert file.keys.read(Keys.of([OLD]).sign(GRANT)) == GRANT


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not JSON"),
        ('{"keys": []}', "keys"),
        ('{"keys": [{"id": "a", "secret": "short-one"}]}', "keys.0.secret"),
        (json.dumps({"keys": [{"id": "a", "secret": "x" * 40}] * 2}), "an id twice"),
        (json.dumps({"keys": [{"id": "a", "secret": "x" * 40, "more": 1}]}), "keys.0.more"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_not_what_is_in_it(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=words) as raised:
        KeyFile(path)
    assert "short-one" not in str(raised.value)
    assert "xxxx" not in str(raised.value)

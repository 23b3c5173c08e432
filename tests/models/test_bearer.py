"""Files of bearer tokens: purposes, overlap, expiry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiphys_models.serving.bearer import BearerTokens, TokenFile

NOON_S = 1_798_718_400.0  # 2026-12-31T12:00:00Z


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def status(tokens: BearerTokens, token: str) -> int:
    refusal = tokens.refusal(f"Bearer {token}")
    return 200 if refusal is None else refusal[0]


def test_the_one_token_of_a_file_counts_as_it_always_did(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "secret\n")
    tokens = BearerTokens("X", path)
    assert [status(tokens, given) for given in ("secret", "secre", "", "other")] == [200, 401, 401, 401]
    assert tokens.refusal("secret") == (401, "send the token as Authorization: Bearer")
    assert tokens.to_send() == "secret"
    write(path, "rotated")
    assert [status(tokens, given) for given in ("secret", "rotated")] == [401, 200]


def test_while_tokens_rotate_old_and_new_are_accepted_and_the_first_is_sent(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "# since May", "old", "new", "")
    tokens = BearerTokens("X", path)
    assert [status(tokens, given) for given in ("old", "new", "# since May")] == [200, 200, 401]
    assert tokens.to_send() == "old"
    write(path, "new", "old")
    assert tokens.to_send() == "new"
    write(path, "new")
    assert status(tokens, "old") == 401


STEPS = (["old"], ["old", "new"], ["new", "old"], ["new"])
"""How a token rotates: the new one behind the old one everywhere, then before it, then alone."""


@pytest.mark.parametrize("step", range(len(STEPS) - 1))
@pytest.mark.parametrize("reader_first", [True, False])
def test_who_reads_and_who_serves_may_be_a_step_apart_while_a_token_rotates(tmp_path: Path, step: int, reader_first: bool) -> None:
    """Each kubelet shows its pods a changed Secret in its own time."""
    before, after = write(tmp_path / "before", *STEPS[step]), write(tmp_path / "after", *STEPS[step + 1])
    reader, service = (after, before) if reader_first else (before, after)
    assert status(BearerTokens("X", service), BearerTokens("X", reader).to_send()) == 200


def test_a_token_counts_until_its_end_and_not_a_second_longer(tmp_path: Path) -> None:
    now_s = [NOON_S - 1]
    path = write(tmp_path / "token", "short notAfter=2026-12-31T12:00:00Z", "long notAfter=2026-12-31T15:00:00+02:00")
    tokens = BearerTokens("X", path, now_s=lambda: now_s[0])
    assert [status(tokens, given) for given in ("short", "long")] == [200, 200]
    assert tokens.to_send() == "short"
    now_s[0] += 1
    assert [status(tokens, given) for given in ("short", "long")] == [401, 200]
    assert tokens.to_send() == "long"
    now_s[0] += 3600
    assert status(tokens, "long") == 401


@pytest.mark.parametrize(
    "line",
    [
        "secret notAfter=soon",
        "secret notAfter=2026-12-31T12:00:00",
        "secret until=2030",
        "secret notAfter=99999-01-01T00:00:00Z",
        "secret x",
    ],
)
def test_an_end_that_cannot_be_read_is_no_end_to_rely_on(tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    file = TokenFile(write(tmp_path / "token", line), lambda: NOON_S)
    assert file.valid() == []
    assert file.valid() == []
    assert [record.message for record in caplog.records] == ["tokens that do not count"]
    assert "secret" not in str(caplog.records[0].__dict__)


def test_a_purpose_has_its_own_token_and_the_one_for_all_goes_on_working(tmp_path: Path) -> None:
    general, own = write(tmp_path / "token", "general"), write(tmp_path / "decisions", "decisions")
    decisions, loads = BearerTokens("X", own, general), BearerTokens("X", write(tmp_path / "loads", "loads"), general)
    assert [status(decisions, given) for given in ("decisions", "loads", "general")] == [200, 401, 200]
    assert [status(loads, given) for given in ("decisions", "loads", "general")] == [401, 200, 200]
    assert decisions.to_send() == "decisions"
    own.unlink()
    assert status(decisions, "general") == 200
    assert decisions.to_send() == "general"
    general.unlink()
    assert decisions.refusal("Bearer general") == (403, "the token file cannot be read")


def test_without_any_file_nobody_reads_and_the_answer_says_what_to_set() -> None:
    assert BearerTokens("TIPHYS_X", None).refusal("Bearer x") == (403, "no token is configured: set TIPHYS_X")


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    tokens = BearerTokens("X", write(tmp_path / "token", ""))
    assert [status(tokens, given) for given in ("", " ", "x")] == [401, 401, 401]

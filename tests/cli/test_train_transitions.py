"""What the trainer reads from the operator's own listener, keeps, and says is missing."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import trustme

from tests.operator.api_server import FakeApiServer
from tests.operator.scaling.test_transition_log import transition
from tiphys_cli.train.transitions import Pulled, pull, read_file
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_models.serving.certificates import ServerCertificates
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.health import Health
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.status_server import StatusServer


@asynccontextmanager
async def serving(log: TransitionLog, token: Path, certificates: ServerCertificates | None = None) -> AsyncIterator[str]:
    clock = ManualClock()
    async with FakeApiServer() as server, server.client() as client:
        health = Health(clock, Lease(client, LeaseOptions("n", "l", "a"), clock), dead_after_s=150)
        async with StatusServer("127.0.0.1", 0, health, OperatorMetrics(), log, token, certificates=certificates) as status:
            yield f"http://127.0.0.1:{status.port}"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret")
    return path


def append(log: TransitionLog, first: int, count: int, policy: str = "default/web") -> None:
    for number in range(first, first + count):
        log.append(transition(policy, number=number, at=15.0 * number))


async def test_it_reads_on_where_it_stopped_and_keeps_what_the_operator_forgets(tmp_path: Path, token: Path) -> None:
    log = TransitionLog(capacity=8)

    async def read(url: str) -> Pulled:
        return await asyncio.to_thread(pull, url, token, "", tmp_path / "out")

    async with serving(log, token) as url:
        append(log, 1, 10)
        first = await read(url)
        assert (first.new, first.lost, first.before) == (8, 0, 2)
        again = await read(url)
        assert (again.new, again.lost, again.before, len(again.transitions)) == (0, 0, 0, 8)
        append(log, 11, 11)
        third = await read(url)
        assert (third.new, third.lost, third.before) == (8, 3, 0)
        assert [t.number for t in third.transitions] == [*range(3, 11), *range(14, 22)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"transitions.jsonl", "transitions.cursors.json"}
    restarted = TransitionLog()
    append(restarted, 22, 2)
    async with serving(restarted, token) as url:
        assert [t.number for t in (await read(url)).transitions][-2:] == [22, 23]
    assert [t.number for t in read_file(tmp_path / "out" / "transitions.jsonl")][-3:] == [21, 22, 23]


async def test_a_full_file_keeps_the_newest_and_says_what_it_forgot(tmp_path: Path, token: Path) -> None:
    log, out = TransitionLog(), tmp_path / "out"
    async with serving(log, token) as url:
        append(log, 1, 10)
        assert (await asyncio.to_thread(pull, url, token, "", out, 12)).forgotten == 0
        append(log, 11, 5)
        second = await asyncio.to_thread(pull, url, token, "", out, 12)
        assert (second.new, second.forgotten) == (5, 3)
        assert [t.number for t in second.transitions] == [*range(4, 16)]
        assert read_file(out / "transitions.jsonl") == list(second.transitions)
        again = await asyncio.to_thread(pull, url, token, "", out, 12)
        assert (again.new, again.lost, again.forgotten) == (0, 0, 0), "what is forgotten is not read again"
    assert {path.name for path in out.iterdir()} == {"transitions.jsonl", "transitions.cursors.json"}


async def test_cursors_of_operators_that_are_long_gone_are_forgotten_first(tmp_path: Path, token: Path) -> None:
    first, out = TransitionLog(), tmp_path / "out"
    append(first, 1, 2)
    async with serving(first, token) as url:
        await asyncio.to_thread(pull, url, token, "", out)
    cursors = out / "transitions.cursors.json"
    cursors.write_bytes(orjson.dumps({f"gone-{n}/": 7 for n in range(300)} | orjson.loads(cursors.read_bytes())))
    second = TransitionLog()
    append(second, 1, 2)
    async with serving(second, token) as url:
        await asyncio.to_thread(pull, url, token, "", out)
    known = orjson.loads(cursors.read_bytes())
    assert len(known) == 256
    assert list(known)[-2:] == [f"{first.epoch}/", f"{second.epoch}/"]


async def test_more_than_a_page_and_one_policy_alone(tmp_path: Path, token: Path) -> None:
    log = TransitionLog()
    append(log, 1, 1500)
    append(log, 1, 20, "default/api")
    async with serving(log, token) as url:
        everything = await asyncio.to_thread(pull, url, token, "", tmp_path / "all")
        assert everything.new == 1520
        one = await asyncio.to_thread(pull, url, token, "default/api", tmp_path / "one")
        assert {t.policy for t in one.transitions} == {"default/api"}
        assert one.new == 20


async def test_no_proxy_sees_the_token(tmp_path: Path, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(urllib.request, "_opener", None)
    log = TransitionLog()
    append(log, 1, 3)
    async with serving(log, token) as url:
        assert (await asyncio.to_thread(pull, url, token, "", tmp_path / "out")).new == 3


async def test_what_goes_wrong_is_said_and_nothing_is_kept(tmp_path: Path, token: Path) -> None:
    wrong, out = tmp_path / "wrong", tmp_path / "out"
    wrong.write_text("guess")
    async with serving(TransitionLog(), token) as url:
        with pytest.raises(Unavailable, match="401"):
            await asyncio.to_thread(pull, url, wrong, "", out)
        with pytest.raises(InvalidInput, match="token-file"):
            await asyncio.to_thread(pull, url, tmp_path / "none", "", out)
    with pytest.raises(Unavailable):
        await asyncio.to_thread(pull, url, token, "", out)
    for url in ("ftp://somewhere", "http://somewhere:http", "http://somewhere:99999", "http://[somewhere"):
        with pytest.raises(InvalidInput, match="neither a file nor"):
            pull(url, token, "", out)
    assert not out.exists()


def test_a_line_that_is_no_transition_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(transition().model_dump_json(by_alias=True) + "\n{}\n")
    with pytest.raises(InvalidInput, match="line 2"):
        read_file(file)


async def test_a_line_that_was_cut_off_while_it_was_written_is_read_again(tmp_path: Path, token: Path) -> None:
    log, out = TransitionLog(), tmp_path / "out"
    append(log, 1, 3)
    async with serving(log, token) as url:
        await asyncio.to_thread(pull, url, token, "", out)
        (out / "transitions.cursors.json").unlink()
        kept = out / "transitions.jsonl"
        kept.write_bytes(kept.read_bytes()[:-40])
        again = await asyncio.to_thread(pull, url, token, "", out)
    assert {t.number for t in again.transitions} == {1, 2, 3}
    assert len(read_file(kept)) == 2 + 3


@pytest.fixture
def rotating(token: Path) -> Path:
    token.write_text("old notAfter=2020-01-01T00:00:00Z\nsecret\n")
    return token


async def test_it_reads_over_tls_from_an_operator_that_its_authority_has_signed_and_from_no_other(tmp_path: Path, rotating: Path) -> None:
    authority, stranger, log = trustme.CA(), trustme.CA(), TransitionLog()
    append(log, 1, 3)
    issued = authority.issue_cert("localhost")
    (tmp_path / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    for name, signer in (("ca", authority), ("stranger", stranger)):
        signer.cert_pem.write_to_path(tmp_path / name)
    async with serving(log, rotating, ServerCertificates(tmp_path / "tls.crt", tmp_path / "tls.key", None)) as url:
        named = url.replace("http://127.0.0.1", "https://localhost")

        def read(ca: str) -> Pulled:
            return pull(named, rotating, "", tmp_path / "out", ca_file=tmp_path / ca)

        assert (await asyncio.to_thread(read, "ca")).new == 3
        with pytest.raises(Unavailable, match="certificate"):
            await asyncio.to_thread(read, "stranger")

"""Mutual TLS on the scheduler's listener, with certificates that change while it serves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.extender.harness import Extender, arguments, check_contract, connected, serving
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.tls import ServerTls
from tiphys_models.base.errors import InvalidInput
from tiphys_models.serving.bounds import ListenerBounds

NAMES = ["n0", "n1"]
CALL = json.dumps(arguments(NAMES)).encode()


class Files:
    """Where the chart would mount certificates."""

    def __init__(self, directory: Path) -> None:
        self.cert, self.key, self.ca = directory / "tls.crt", directory / "tls.key", directory / "ca.crt"
        self._written = 0

    def serve(self, authority: trustme.CA, not_after: datetime | None = None) -> None:
        issued = authority.issue_cert("localhost", not_after=not_after)
        self._put(self.cert, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self._put(self.key, issued.private_key_pem.bytes())

    def trust(self, *authorities: trustme.CA) -> None:
        self._put(self.ca, b"".join(authority.cert_pem.bytes() for authority in authorities))

    def _put(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        self._written += 1  # distinct times even on a coarse file system
        os.utime(path, ns=(self._written, self._written))

    def open(self, metrics: Metrics) -> ServerTls:
        return ServerTls(self.cert, self.key, self.ca, metrics)


def client(server_ca: trustme.CA, own_ca: trustme.CA | None, not_after: datetime | None = None) -> ssl.SSLContext:
    """A scheduler that trusts a CA and may show a certificate of another."""
    context = ssl.create_default_context()
    server_ca.configure_trust(context)
    if own_ca is not None:
        own_ca.issue_cert("kube-scheduler", not_after=not_after).configure_cert(context)
    return context


async def call(port: int, context: ssl.SSLContext) -> None:
    async with connected(port, context) as connection:
        status, _, answer = await connection.post(CALL)
        assert status == 200
        check_contract(answer, NAMES)


@pytest.fixture
def authorities() -> tuple[trustme.CA, trustme.CA]:
    return trustme.CA(), trustme.CA()


async def test_only_certificates_of_the_client_authority_get_through(tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]) -> None:
    server_ca, client_ca = authorities
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_ca)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    async with serving(extender, tls=lambda: tls.context) as port:
        await call(port, client(server_ca, client_ca))
        yesterday = datetime.now(UTC) - timedelta(days=1)
        for stranger in (
            client(server_ca, None),  # no certificate
            client(server_ca, server_ca),  # of another authority
            client(server_ca, client_ca, not_after=yesterday),  # expired
        ):
            with pytest.raises((ssl.SSLError, OSError, EOFError)):
                await call(port, stranger)
        with pytest.raises(ssl.SSLCertVerificationError):  # the scheduler in turn refuses a server it does not know
            await call(port, client(client_ca, client_ca))
        with pytest.raises((OSError, EOFError)):  # plain HTTP
            async with connected(port) as connection:
                await connection.post(CALL)
        await call(port, client(server_ca, client_ca))
    extender.answerer.settle()
    assert extender.decisions.last == 2


async def test_certificates_and_authorities_change_without_a_restart(tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]) -> None:
    old, new = authorities
    client_old, client_new = trustme.CA(), trustme.CA()
    files = Files(tmp_path)
    soon = datetime.now(UTC) + timedelta(days=3)
    files.serve(old, not_after=soon)
    files.trust(client_old)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    assert extender.counted("certificate_expiry_timestamp_seconds") == pytest.approx(soon.timestamp(), abs=2)
    async with serving(extender, tls=lambda: tls.context) as port, connected(port, client(old, client_old)) as kept:
        assert not tls.reload_if_changed()
        files.serve(new)
        files.trust(client_old, client_new)  # the overlap while authorities change
        assert tls.reload_if_changed()
        assert not tls.reload_if_changed()
        assert extender.counted("certificate_expiry_timestamp_seconds") > time.time() + 86_400 * 100
        await call(port, client(new, client_old))
        await call(port, client(new, client_new))
        with pytest.raises(ssl.SSLCertVerificationError):
            await call(port, client(old, client_old))
        assert (await kept.post(CALL))[0] == 200  # nobody's open connection breaks


async def test_a_half_written_pair_leaves_the_last_one_in_use(tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]) -> None:
    server_ca, client_ca = authorities
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_ca)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    async with serving(extender, tls=lambda: tls.context) as port:
        key = files.key.read_bytes()
        files.serve(server_ca)
        fresh = files.key.read_bytes()
        files.key.write_bytes(key)  # the new certificate with the old key
        assert not tls.reload_if_changed()
        await call(port, client(server_ca, client_ca))
        files.cert.write_bytes(b"no certificate")
        assert not tls.reload_if_changed()
        files.cert.unlink()
        assert not tls.reload_if_changed()
        await call(port, client(server_ca, client_ca))
        files.serve(server_ca)
        assert fresh != files.key.read_bytes()
        assert tls.reload_if_changed()
        await call(port, client(server_ca, client_ca))


def test_files_that_do_not_fit_are_refused_at_start_with_their_names(tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]) -> None:
    files = Files(tmp_path)
    with pytest.raises(InvalidInput, match=r"tls\.crt"):
        files.open(Metrics())
    files.serve(authorities[0])
    with pytest.raises(InvalidInput, match=r"ca\.crt"):
        files.open(Metrics())


async def test_an_authority_that_was_removed_is_refused_from_the_next_handshake_on(tmp_path: Path) -> None:
    server_ca, client_old, client_new = trustme.CA(), trustme.CA(), trustme.CA()
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_old)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    old, new = client(server_ca, client_old), client(server_ca, client_new)
    async with serving(extender, tls=lambda: tls.context) as port:
        await call(port, old)
        files.trust(client_old, client_new)
        assert tls.reload_if_changed()
        await call(port, old)
        await call(port, new)
        files.trust(client_new)
        assert tls.reload_if_changed()
        with pytest.raises((ssl.SSLError, OSError, EOFError)):
            await call(port, old)
        await call(port, new)
    assert extender.counted("tls_handshake_failures_total", reason="untrusted") == 1


async def test_nobody_resumes_a_session_and_so_skips_showing_a_certificate(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]
) -> None:
    server_ca, client_ca = authorities
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_ca)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client(server_ca, client_ca)
        context.minimum_version = context.maximum_version = version
        async with serving(extender, tls=lambda: tls.context) as port:
            first = await asyncio.to_thread(handshake, port, context, None)
            assert not (await asyncio.to_thread(handshake, port, context, first.session)).session_reused


def handshake(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    """A connection that has made a call, closed."""
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost", session=session) as connection:
        connection.sendall(b"POST /floor HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert connection.recv(100)
        return connection


async def test_a_client_whose_certificate_has_run_out_is_counted_and_named_once(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA], caplog: pytest.LogCaptureFixture
) -> None:
    server_ca, client_ca = authorities
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_ca)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    expired = client(server_ca, client_ca, not_after=datetime.now(UTC) - timedelta(days=1))
    async with serving(extender, tls=lambda: tls.context) as port:
        for _ in range(3):
            with pytest.raises((ssl.SSLError, OSError, EOFError)):
                await call(port, expired)
        await call(port, client(server_ca, client_ca))
    assert extender.counted("tls_handshake_failures_total", reason="expired") == 3
    said = [record for record in caplog.records if record.message == "TLS handshake failed"]
    assert len(said) == 1
    assert said[0].fields["reason"] == "expired"  # type: ignore[attr-defined]


def test_our_own_certificate_that_has_run_out_is_said_once_until_there_is_another(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA], caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.serve(authorities[0], not_after=datetime.now(UTC) - timedelta(days=1))
    files.trust(authorities[1])
    metrics = Metrics()
    tls = files.open(metrics)
    for _ in range(3):
        tls.reload_if_changed()
    assert [record.message for record in caplog.records].count("our certificate has expired: clients refuse it") == 1
    assert metrics.registry.get_sample_value("tiphys_extender_certificate_expiry_timestamp_seconds") < time.time()  # type: ignore[operator]
    files.serve(authorities[0])
    assert tls.reload_if_changed()
    assert metrics.registry.get_sample_value("tiphys_extender_certificate_expiry_timestamp_seconds") > time.time()  # type: ignore[operator]


async def test_connections_that_never_begin_tls_are_cut_and_counted_among_all_there_are(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiphys_models.serving.acceptor.HANDSHAKE_LIMIT_S", 0.2)
    server_ca, client_ca = authorities
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(client_ca)
    extender = Extender(nodes=2)
    tls = files.open(extender.metrics)
    async with serving(extender, tls=lambda: tls.context, bounds=ListenerBounds(connections_a_peer=2)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        with pytest.raises((ssl.SSLError, OSError, EOFError)):
            await call(port, client(server_ca, client_ca))  # both places are taken
        for reader, writer in silent:
            async with asyncio.timeout(2):
                assert await reader.read() == b""
            writer.close()
        await call(port, client(server_ca, client_ca))

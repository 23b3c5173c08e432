"""Mutual TLS on the scheduler's listener, with certificates that change while it serves."""

from __future__ import annotations

import json
import os
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.extender.harness import Extender, arguments, check_contract, connected, serving
from tiphys_extender.metrics import Metrics
from tiphys_extender.tls import ServerTls
from tiphys_models.domain.errors import InvalidInput

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
    async with serving(extender, tls=tls.context) as port:
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
    async with serving(extender, tls=tls.context) as port, connected(port, client(old, client_old)) as kept:
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
    async with serving(extender, tls=tls.context) as port:
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

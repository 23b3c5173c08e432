"""Which addresses are probed, and which are nobody's to ask."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import numpy as np
import pytest

from tests.operator.streams.test_probes import serving
from tiphys_models.api.inference_site import Probe
from tiphys_models.api.stream_reasons import ProbeMiss, ProbeRefusal
from tiphys_operator.networks import networks_of
from tiphys_operator.streams.addresses import AddressRules, ApiServer, ProbeRefused
from tiphys_operator.streams.probes import ProbeMissed, Probes

API_SERVER = frozenset({ipaddress.ip_address("10.96.0.1"), ipaddress.ip_address("fd00::1")})


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("169.254.0.1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("::ffff:169.254.1.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - nobody listens there
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "multicast"),
        ("10.96.0.1", "api-server"),
        ("::ffff:10.96.0.1", "api-server"),
        ("fd00::1", "api-server"),
    ],
)
def test_addresses_of_the_operators_own_surroundings_are_refused_however_they_are_written(address: str, rule: str) -> None:
    rules = AddressRules(api_server=lambda: API_SERVER)
    with pytest.raises(ProbeRefused) as told:
        rules.check(address)
    assert told.value.rule == rule
    AddressRules((ipaddress.ip_network(address.partition("%")[0]),), api_server=lambda: API_SERVER).check(address)


@pytest.mark.parametrize("address", ["10.96.0.2", "192.168.1.1", "8.8.8.8", "172.16.0.1", "2001:db8::1", "fd00::2", "64:ff9b::808:808"])
def test_all_other_addresses_may_be_probed(address: str) -> None:
    AddressRules(api_server=lambda: API_SERVER).check(address)


def test_networks_can_be_named_beside_which_nothing_is_probed() -> None:
    rules = AddressRules(only=networks_of("10.0.0.0/8, 2001:db8::/32"), allow=networks_of("127.0.0.2/32"), api_server=lambda: API_SERVER)
    for inside in ("10.1.2.3", "2001:db8::5", "127.0.0.2"):
        rules.check(inside)
    for outside, rule in (
        ("11.0.0.1", "outside-cidrs"),
        ("2001:db9::1", "outside-cidrs"),
        ("127.0.0.1", "loopback"),
        ("10.96.0.1", "api-server"),
    ):
        with pytest.raises(ProbeRefused) as told:
            rules.check(outside)
        assert told.value.rule == rule


@pytest.mark.parametrize("host", ["127.0.0.2", "127.2", "2130706434", "0x7f.0.0.2", "[::ffff:127.0.0.2]"])
async def test_no_spelling_of_an_address_gets_a_probe_past_the_rules(host: str) -> None:
    async with serving() as site, Probes() as probes:
        port = site.url.rstrip("/").rpartition(":")[2]
        with pytest.raises((ProbeRefused, ProbeMissed)):  # numbers that are no addresses are refused by the library itself
            await probes.round_trip_ms(Probe(url=f"http://{host}:{port}/"))
        if not host.startswith("["):
            with pytest.raises(ProbeRefused) as told:
                await probes.round_trip_ms(Probe(host=host, port=int(port)))
            assert told.value.rule is ProbeRefusal.LOOPBACK
        assert not site.connections


async def test_a_name_that_means_another_address_a_moment_later_is_looked_at_when_it_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve = socket.getaddrinfo

    def rebound(host: Any, *args: Any, **options: Any) -> Any:
        return resolve("127.0.0.2", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    async with serving() as site, Probes() as probes:
        port = int(site.url.rstrip("/").rpartition(":")[2])
        for probe in (Probe(url=f"http://harmless.example:{port}/"), Probe(host="harmless.example", port=port)):
            with pytest.raises(ProbeRefused):
                await probes.round_trip_ms(probe)
        assert not site.connections


async def test_a_name_with_several_addresses_is_probed_at_those_that_are_allowed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def several(host: Any, *args: Any, **options: Any) -> Any:
        return [found for address in ("127.0.0.3", "127.0.0.2") for found in resolve(address, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    async with serving() as site:
        url = f"http://two.example:{site.url.rstrip('/').rpartition(':')[2]}/"
        async with Probes(AddressRules(allow=networks_of("127.0.0.2"))) as probes:
            assert await probes.round_trip_ms(Probe(url=url)) > 0
        async with Probes() as probes:
            with pytest.raises(ProbeRefused):
                await probes.round_trip_ms(Probe(url=url))


async def test_the_api_server_is_found_under_all_its_names_and_kept_while_none_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer("10.96.0.1", "localhost", "")
    await server.refresh()
    before = server.addresses()
    assert {ipaddress.ip_address("10.96.0.1"), ipaddress.ip_address("127.0.0.1")} <= before

    def nothing(*args: Any, **options: Any) -> Any:
        raise OSError("no resolver")

    monkeypatch.setattr(socket, "getaddrinfo", nothing)
    await server.refresh()
    assert server.addresses() == before


async def test_how_a_probe_was_missed_is_told_in_fixed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as site, Probes(AddressRules(allow=networks_of("127.0.0.0/8"))) as probes:

        async def why(probe: Probe) -> ProbeMiss:
            with pytest.raises(ProbeMissed) as told:
                await probes.round_trip_ms(probe)
            assert str(told.value) == told.value.why
            return told.value.why

        site.status = 503
        assert await why(Probe(url=site.url)) is ProbeMiss.SERVER_ERROR
        site.status, site.delay_s = 200, 60.0
        assert await why(Probe(url=site.url, timeout_seconds=1)) is ProbeMiss.TIMEOUT
        assert await why(Probe(url=site.url.replace("http:", "https:"))) is ProbeMiss.TLS
        assert await why(Probe(host="127.0.0.2", port=1)) is ProbeMiss.REFUSED
        assert await why(Probe(url="http://127.0.0.2:1/")) is ProbeMiss.REFUSED

        def unknown(*args: Any, **options: Any) -> Any:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        for probe in (Probe(url="http://nowhere.example/"), Probe(host="nowhere.example", port=1)):
            assert await why(probe) is ProbeMiss.NAME


def test_no_way_to_put_a_refused_address_into_another_gets_past_the_rules() -> None:
    random = np.random.default_rng(5)
    nets = [ipaddress.ip_network(text) for text in ("127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "224.0.0.0/3")]
    rules = AddressRules()
    for _ in range(2_000):
        net = nets[random.integers(len(nets))]
        inner = int(net.network_address) + int(random.integers(net.num_addresses))
        inside = [
            (0xFFFF << 32) | inner,
            (0x2002 << 112) | (inner << 80) | int(random.integers(2**32)),
            (0x64FF9B << 96) | inner,
            (0x20010000 << 96) | (0x08080808 << 64) | (~inner & 0xFFFF_FFFF),
        ]
        for address in (ipaddress.IPv4Address(inner), *map(ipaddress.IPv6Address, inside)):
            with pytest.raises(ProbeRefused):
                rules.check(str(address))

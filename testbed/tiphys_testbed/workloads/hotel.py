"""hotel-app: a front end that asks `geo` for the hotels near a point and `profile` for what is known of them."""

from __future__ import annotations

import http.client
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from tiphys_testbed.workloads.server import Query, Work

HOTELS = 400
NEAREST = 5
ASK_S = 4.0
"""The time-out of a question to geo or profile: below the time after which a request is given up."""
_EARTH_KM = 6371.0
_SEED = 7
_CENTRE = (37.7749, -122.4194)


@dataclass(frozen=True, slots=True)
class Hotel:
    """One of the made-up hotels; the same in every process."""

    name: str
    latitude: float
    longitude: float
    rooms: int
    description: str


def hotels(count: int = HOTELS) -> list[Hotel]:
    """Around one town, from a fixed seed: geo and profile must know the same ones."""
    rng = random.Random(_SEED)  # noqa: S311 - made-up hotels
    words = ("quiet", "central", "bright", "old", "small", "near the water", "with a garden", "above the market")
    return [
        Hotel(
            f"hotel-{number}",
            _CENTRE[0] + rng.uniform(-0.3, 0.3),
            _CENTRE[1] + rng.uniform(-0.3, 0.3),
            rng.randrange(5, 200),
            ", ".join(rng.sample(words, 4)),
        )
        for number in range(count)
    ]


class Geo:
    """`?lat=&lon=` → names of the nearest hotels, by great-circle distance to every one."""

    def __init__(self, known: Sequence[Hotel]) -> None:
        self._known = tuple(known)

    def nearest(self, query: Query) -> list[str]:
        """Names of the hotels nearest to a place, the nearest first."""
        here = float(query["lat"]), float(query["lon"])
        if not all(map(math.isfinite, here)):
            raise ValueError("lat and lon must be finite")
        found = sorted(self._known, key=lambda hotel: distance_km(here, (hotel.latitude, hotel.longitude)))
        return [hotel.name for hotel in found[:NEAREST]]


class HotelProfile:
    """`?ids=a,b` → what is known of each."""

    def __init__(self, known: Sequence[Hotel]) -> None:
        self._known = {hotel.name: hotel for hotel in known}

    def describe(self, query: Query) -> list[dict[str, Any]]:
        """Details of the hotels asked for, in that order; an unknown one makes the query wrong."""
        return [asdict(self._known[name]) for name in query["ids"].split(",")]


class HotelFront:
    """`?lat=&lon=` → the nearest hotels with their profiles."""

    def __init__(self, geo: str, profile: str) -> None:
        self._geo, self._profile = geo, profile

    def search(self, query: Query) -> dict[str, Any]:
        """Two calls, one after the other."""
        names = ask(self._geo, "/nearest", {"lat": query["lat"], "lon": query["lon"]})
        return {"hotels": ask(self._profile, "/describe", {"ids": ",".join(names)})}


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Between two points on the globe."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(p[0]), math.radians(p[1])) for p in (a, b))
    h = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(h))


def ask(address: str, path: str, query: Query) -> Any:
    """GET from `host:port`; OSError if there is no good answer."""
    connection = http.client.HTTPConnection(address, timeout=ASK_S)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}")
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{address}{path}: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{address}{path} answered {answer.status}")
    return json.loads(body)


def routes(role: str, geo: str = "geo:8080", profile: str = "profile:8080") -> dict[str, Work]:
    """The routes of one of the three services."""
    if role == "geo":
        return {"/nearest": Geo(hotels()).nearest}
    if role == "profile":
        return {"/describe": HotelProfile(hotels()).describe}
    return {"/": HotelFront(geo, profile).search}

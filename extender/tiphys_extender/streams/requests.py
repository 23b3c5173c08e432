"""What callers send about streams."""

from __future__ import annotations

import re
from hashlib import blake2b
from secrets import token_hex
from typing import Annotated

from pydantic import Field, StringConstraints

from tiphys_extender.serve.requests import Request
from tiphys_extender.streams.tokens import Counts
from tiphys_models.streams.stream import Stream

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)]
Milliseconds = Annotated[float, Field(ge=0, le=3_600_000)]
Positive = Annotated[float, Field(gt=0, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=2**53)]


_ID = re.compile(r"stream-[0-9a-f]{32}")


def is_id(uid: str) -> bool:
    """Whether a stream could be called so."""
    return _ID.fullmatch(uid) is not None


class Wanted(Request):
    """A stream that wants an offer."""

    task: Word
    max_delay_ms: Positive
    """Longest time between the client's sending a query and its having the answer."""
    min_accuracy: Annotated[float, Field(ge=0, le=100)] = 0.0
    rate_qps: Positive
    size_kb: Positive
    """Size of one query on the wire."""
    bit_rate_mbps: Positive
    access_delay_ms: Milliseconds = 0.0
    """One way, between client and access site."""
    application: Annotated[str, StringConstraints(max_length=63)] = ""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None

    def stream(self, uid: str) -> Stream:
        """The stream as policies know it; its random bits come from its id."""
        return Stream(
            self.task,
            self.max_delay_ms,
            self.min_accuracy,
            self.rate_qps,
            self.size_kb,
            self.bit_rate_mbps,
            self.access_delay_ms,
            self.application,
            int(uid[-16:], 16),
        )

    def identity(self, tenant: str) -> tuple[str, str]:
        """Id of the stream, and a digest of what is asked for. A key gives the same id in every process, so that nothing is bound twice."""
        if self.idempotency_key is None:
            return f"stream-{token_hex(16)}", ""
        uid = blake2b(f"{tenant}\0{self.idempotency_key}".encode(), digest_size=16).hexdigest()
        return f"stream-{uid}", blake2b(self.model_dump_json().encode(), digest_size=8).hexdigest()


class ReportedQueries(Request):
    """What became of a stream's queries since it was bound; nothing: the client does not count."""

    served: Count | None = None
    late: Count | None = None
    refused: Count | None = None

    @property
    def counts(self) -> Counts | None:
        """Counts that the client reports; None if it reports none."""
        if self.served is None and self.late is None and self.refused is None:
            return None
        return Counts(self.served or 0, self.late or 0, self.refused or 0)


class Renewal(ReportedQueries):
    """The stream goes on."""

    lease: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    """The newest token that the client has of it."""

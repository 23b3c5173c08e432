"""fibonacci-python: one request burns the CPU of fib(n), recursively, so that its cost is known and grows with n alone."""

from __future__ import annotations

from tiphys_testbed.workloads.server import Query, Work

DEFAULT_N = 22
LARGEST_N = 30


def fib(n: int) -> int:
    """2·fib(n+1) − 1 calls: a pure burn of CPU."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def answer(query: Query) -> dict[str, int]:
    """The answer to `?n=22`: n and the Fibonacci number of n."""
    n = int(query.get("n", DEFAULT_N))
    if not 0 <= n <= LARGEST_N:
        raise ValueError(f"n must be 0 to {LARGEST_N}")
    return {"n": n, "fib": fib(n)}


ROUTES: dict[str, Work] = {"/": answer}

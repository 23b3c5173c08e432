"""A lock between processes that ends with its holder, whatever happens to it."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_DEADLINE_S = 3600.0
_POLL_S = 0.2


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None], deadline_s: float = LOCK_DEADLINE_S) -> Iterator[None]:
    """Hold the lock file alone; call `waiting` again and again while somebody else holds it."""
    end = time.monotonic() + deadline_s
    with path.open("a", encoding="utf-8") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"{path} was held by another process for {deadline_s:.0f} s") from None
                waiting()
                time.sleep(_POLL_S)
        yield

"""`python -m tiphys_testbed.workloads fibonacci|geo|profile|front`: what a container of these services runs."""

import argparse

from tiphys_testbed.workloads import fibonacci, hotel
from tiphys_testbed.workloads.server import run


def main() -> None:
    """Serve one of them."""
    parser = argparse.ArgumentParser(prog="python -m tiphys_testbed.workloads")
    parser.add_argument("service", choices=("fibonacci", "geo", "profile", "front"))
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a pod's own address
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=1, help="requests done at a time")
    parser.add_argument("--geo", default="geo:8080", help="front: where geo is")
    parser.add_argument("--profile", default="profile:8080", help="front: where profile is")
    chosen = parser.parse_args()
    found = fibonacci.ROUTES if chosen.service == "fibonacci" else hotel.routes(chosen.service, chosen.geo, chosen.profile)
    run(found, chosen.host, chosen.port, chosen.threads)


if __name__ == "__main__":
    main()

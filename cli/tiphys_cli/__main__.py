"""`python -m tiphys_cli`, and the `tiphys` command."""

from tiphys_cli.app import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()

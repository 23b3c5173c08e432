"""Dashboard, alerts and runbook, written from code: `python -m tiphys_cli.observability`."""

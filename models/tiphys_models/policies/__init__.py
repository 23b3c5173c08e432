"""Placement policies: pure scores over candidates. `registry` lists them by the names the CRD uses."""

"""The `tiphys` command: local cluster, demo, benchmarks, explain, doctor, snapshot."""

"""The programs of a local control plane, built from their Go modules into a cache outside the clone.

Each directory beside this file is one Go module with the program's exact version and every checksum: `go.mod` is the
only place where a version is written. `Toolbox` builds what is missing and hands out paths.
"""

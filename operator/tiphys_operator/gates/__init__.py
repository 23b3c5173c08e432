"""The second opener: pods that are held longer than anybody may wait are let go, whatever has become of the first one."""

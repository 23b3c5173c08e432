"""What every listener of ours does alike, whichever protocol speaks on it: bounds, connections, certificates, bearer tokens."""

"""What people use when something is not as they expect: explain, doctor, snapshot, policies, unroute."""

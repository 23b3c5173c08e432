"""A plane with every part of Tiphys at work: what `tiphys cluster up --full` starts, and end-to-end tests attack."""

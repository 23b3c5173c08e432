"""`tiphys bench live-placement`: placement policies and stock schedulers on a live control plane, side by side on the same calls."""

"""`tiphys bench placement`: every policy on the same calls in the simulated FaaS cluster."""

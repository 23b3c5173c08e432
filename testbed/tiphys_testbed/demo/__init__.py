"""`tiphys demo`: one function workload, several schedulers, the same simulated machines for each of them."""

"""`tiphys train`: learned policies from simulation, on one machine."""

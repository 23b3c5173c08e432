"""`tiphys bench scaling`: scaling agents, rules and a clairvoyant on the same arrivals of a simulated service."""

"""The frame around every decision: a rule and a learned decider, who of them answers and why, and what is kept of it."""

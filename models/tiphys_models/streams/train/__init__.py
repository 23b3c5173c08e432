"""Training of binding: the score by cross-entropy, agents on cloned futures, the paper's agent by deep Q-learning."""

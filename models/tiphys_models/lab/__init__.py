"""What simulation, training and evaluation share whatever the system: studies, rules of evidence, the trainer. No service imports it."""

"""Bandit: one pull of one arm, whose name hints at its risk."""

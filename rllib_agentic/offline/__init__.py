"""Trajectories that were not sampled for this update: collected from experts, stored, read back, paired."""

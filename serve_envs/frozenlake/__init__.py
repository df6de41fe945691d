"""FrozenLake: walk over a frozen lake to the goal without falling into a hole."""

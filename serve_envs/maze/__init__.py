"""Maze: find the way to a goal between walls."""

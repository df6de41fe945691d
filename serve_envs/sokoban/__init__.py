"""Sokoban: push every box onto a goal. A box cannot be pulled, so a wrong push may not be mended."""

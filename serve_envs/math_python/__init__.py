"""math_python: problems with exact answers, and a Python interpreter to solve them with."""

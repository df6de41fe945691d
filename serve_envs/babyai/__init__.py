"""BabyAI: carry out a spoken mission in rooms of which the agent sees what lies before it."""

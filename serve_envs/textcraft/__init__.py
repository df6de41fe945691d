"""TextCraft: craft a goal item from recipes, intermediate items included."""

"""ALFWorld's text engine in generated households: find things, clean, heat, cool and place them."""

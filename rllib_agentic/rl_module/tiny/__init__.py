"""The tokenizer that ships for the preset ``tiny``, and the script that makes it."""

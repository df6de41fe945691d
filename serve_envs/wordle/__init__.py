"""Wordle: find a word of five letters in six guesses, by what each guess tells."""

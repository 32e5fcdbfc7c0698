"""Plugins as the engine asks them: which are in use, whether an answer can be believed, what follows when one fails."""

"""A model that plays the user, so that a replay can have several turns."""

"""What the tuner does for a small model: arithmetic, tool use and a game, each a script with a seed."""

"""Rollouts: a version's way from candidate to live, decided by what its units and those of production show."""

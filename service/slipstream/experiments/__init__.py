"""Experiments: production and a version compared on users, for as long as wanted, and what follows from it."""

"""Simulated comparisons between versions."""

"""Evaluation of versions on fixed cases, and the verdict for a version: better, worse, equal, or not enough data."""

"""Corrections in words: the detector, and learning from them against learning from the number alone."""

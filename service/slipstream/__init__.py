"""Slipstream: an online-training sidecar for production agents."""

__version__ = "0.1.0"

"""Redaction: personal data and secrets are taken out of what is captured, before it is stored."""

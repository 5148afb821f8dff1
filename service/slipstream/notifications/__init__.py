"""Receivers of webhooks, who are told what is decided about versions."""

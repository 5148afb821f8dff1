"""Versions of the policy as files: found where the Trainer writes them, kept from its pruning, put where a lane loads
them."""

"""Runs: what the policy model does with a selected task, from the Explorer's answer to the reward."""

"""Training of agents by the names of the agent-training articles."""

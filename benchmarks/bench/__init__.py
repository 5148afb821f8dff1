"""`make bench`: what a proxy between an agent and its model costs, Slipstream's beside nginx and its peers."""

"""`make client-matrix`: agents of other people's packages behind the sidecar, and how their calls are captured."""

"""This sidecar among those that share the store: its registration, its lease, and clocks that disagree."""

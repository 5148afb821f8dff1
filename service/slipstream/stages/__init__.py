"""The stages of the training side: the loop of one, and the timers that wake it."""

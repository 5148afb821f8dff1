"""The stages of the training side: the loop of one, and the timers and the agenda that wake it."""

"""The control API: feedback, marks, tasks, commits, and what operators look at."""

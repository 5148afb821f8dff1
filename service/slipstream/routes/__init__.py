"""The control routes: feedback, marks, commits, and what operators look at."""

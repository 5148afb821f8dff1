"""Memory: a budget for what is read at the same time, and free memory that is given back to the system."""

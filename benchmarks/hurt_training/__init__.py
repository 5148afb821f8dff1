"""What agents notice while the training side is hurt on purpose."""

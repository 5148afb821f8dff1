"""The commands for one machine: `up`, `init`, `model`, `tune`, `rollback`, and the supervisor of `up`."""

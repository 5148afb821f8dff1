"""Half an hour of load with faults: whether memory, descriptors and tasks stay where they are (`make soak`)."""

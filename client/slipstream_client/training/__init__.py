"""TrainingRunner: selected calls of an agent run again in the background, on the policy model."""

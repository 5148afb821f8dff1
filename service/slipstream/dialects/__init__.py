"""The dialects in which agents ask a model, and the one form in which their calls are known inside."""

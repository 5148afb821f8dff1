"""Training on data sets, measured: how much a policy learns from captured answers, on the tasks of the demo."""

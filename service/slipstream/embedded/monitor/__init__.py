"""Metrics of training: TensorBoard's files, and a run of W&B or MLflow beside them."""

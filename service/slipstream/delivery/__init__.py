"""Delivery of ready groups to the Explorer: how one goes, whose turn it is, and when."""

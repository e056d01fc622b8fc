"""Estimators: from what a datapath counted to what a limiter's traffic demands."""

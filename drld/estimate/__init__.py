"""Estimators: they turn the counts of a datapath into the demand of a limiter's traffic."""

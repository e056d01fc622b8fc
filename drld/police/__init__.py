"""Policing of all kinds of traffic: buckets, policer, arrival times, the datapath protocol."""

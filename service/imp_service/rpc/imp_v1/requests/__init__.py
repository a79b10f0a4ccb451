"""Requests: a rule for each field as data, all checked at once, then read as options of the Python API."""

"""Converts between the plain data of the Python API and the messages of imp.v1."""

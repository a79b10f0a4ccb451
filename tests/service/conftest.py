"""Checks after every test of the service that every call was valid, and that every server is in its former state."""

from support.always_on import always_on

__all__ = ["always_on"]

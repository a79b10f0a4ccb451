"""After every test of the service: every call of it was good, and every server is what it was before."""

from support.always_on import always_on

__all__ = ["always_on"]

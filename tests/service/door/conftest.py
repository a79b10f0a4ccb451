"""After every module of tests: this process holds what it held before."""

from support.always_on import nothing_left

__all__ = ["nothing_left"]

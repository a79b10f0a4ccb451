"""Checks after every test module that the process holds no more descriptors or threads than before."""

from support.run.always_on import nothing_left

__all__ = ["nothing_left"]

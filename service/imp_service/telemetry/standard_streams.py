"""Descriptors 0 to 2 of a process that was started without them: nothing else may get their numbers."""

import os


def hold_standard_streams() -> None:
    """Opens /dev/null in the place of each that is closed, so that no socket becomes anybody's stderr.

    Called before anything is opened.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)

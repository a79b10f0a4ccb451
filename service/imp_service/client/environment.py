"""The one place where a client reads its environment."""

import os

# The default of --target, and of connect().
TARGET_VARIABLE = "IMP_TARGET"


def read_variable(name: str) -> str | None:
    """A variable of imp's clients, such as IMP_TARGET, or one that the user names in place of a secret."""
    return os.environ.get(name)

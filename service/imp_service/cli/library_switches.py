"""Switches of libraries, which they read from the environment when they are imported. Who sets one himself gets his."""

import os


def quiet_grpc() -> None:
    """Before gRPC is imported: what it would write to stderr is neither bounded nor ours."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def rest_openblas() -> None:
    """Before NumPy is imported: its library would start a thread for each CPU, and a server never calls it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

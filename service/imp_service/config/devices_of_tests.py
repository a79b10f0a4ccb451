"""Devices that imp has only where the tests' extension is installed beside it."""

from importlib.util import find_spec

EMULATED_GPU = "cuda_emulated"


def devices_of_tests() -> tuple[str, ...]:
    """Their names, for `device.kind`."""
    return (EMULATED_GPU,) if find_spec("imp_service._testing") else ()

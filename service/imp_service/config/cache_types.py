"""The kind of `kv.dtype`: one type for cached keys and values, or two."""

from __future__ import annotations

from imp_service.config.kinds import Enumeration, UnfitError
from imp_service.tables import KV_TYPES

# Words of other programs -> the type of about their size.
_NEAREST = {
    **dict.fromkeys(("q4_0", "q4_1", "iq4_nl", "u4", "int4", "turbo4", "tbq4", "tq4_0", "turboquant_4bit_nc"), "rot4"),
    **dict.fromkeys(("q5_0", "q5_1", "turboquant_k8v4"), "rot8/rot4"),
    **dict.fromkeys(("turbo3", "tbq3", "turboquant_3bit_nc"), "rot3"),
    **dict.fromkeys(("turbo2", "u2", "int2"), "rot2"),
    **dict.fromkeys(("u8", "int8", "fp8", "fp8_e4m3", "fp8_e5m2", "f8_e4m3"), "rot8"),
    **dict.fromkeys(("float32", "fp32"), "f32"),
    **dict.fromkeys(("float16", "fp16", "half"), "f16"),
    "bfloat16": "bf16",
}


class CacheTypes(Enumeration[str]):
    """One of the core's types, or two as keys/values."""

    def __init__(self) -> None:
        super().__init__(*KV_TYPES)

    @property
    def expected(self) -> str:
        return f'{super().expected}, or two of them as "keys/values"'

    def read(self, raw: object) -> str:
        parts = raw.split("/") if isinstance(raw, str) else []
        if len(parts) in (1, 2) and all(part in self.values for part in parts):
            return parts[0] if parts[0] == parts[-1] else "/".join(parts)
        nearest = _NEAREST.get(str(raw).lower())
        raise UnfitError(self.expected + (f'; the nearest is "{nearest}"' if nearest else ""))

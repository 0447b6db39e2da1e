"""What this machine computes fast: the number type that served weights are kept in here."""

import re
from pathlib import Path

_CPU_BF16 = re.compile(r"\b(?:avx512_bf16|amx_bf16|bf16)\b")


def serving_dtype(cpuinfo: Path = Path("/proc/cpuinfo"), gpu: Path = Path("/dev/nvidia0")) -> str:
    """Choose `bf16` where there is hardware for it, else `fp32`.

    A CPU without it emulates bfloat16, a hundred times slower than float32.
    """
    if gpu.exists():
        return "bf16"
    try:
        words = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "fp32"
    return "bf16" if _CPU_BF16.search(words) else "fp32"

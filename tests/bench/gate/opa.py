"""OPA's own Go library through ctypes, for this bench only.

`opa-golib-python-bindings` says it wants Python 3.14, but its library works with any: the wheel
is unpacked and the library is called directly. `make bench-gate` fetches it by name from PyPI.
"""

import ctypes
import json
import zipfile
from pathlib import Path
from typing import Any

VERSION = "0.4.4"  # holds OPA 1.20.2


def unpacked(folder: Path) -> Path | None:
    """Return the library inside a folder that holds the wheel or its contents, if it is there."""
    library = folder / "opa_bindings" / "libopabridge.so"
    wheel = next(iter(folder.glob(f"opa_golib_python_bindings-{VERSION}-*.whl")), None)
    if not library.is_file() and wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("opa_bindings/libopabridge.so", folder)
    return library if library.is_file() else None


class Opa:
    """One engine with one module."""

    def __init__(self, library: Path, module: str) -> None:
        lib = ctypes.CDLL(str(library))
        lib.OpaNew.restype = ctypes.c_uint64
        lib.OpaFreeString.argtypes = [ctypes.c_void_p]
        lib.OpaAddPolicy.restype = ctypes.c_void_p
        lib.OpaAddPolicy.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p]
        lib.OpaEvalDocument.restype = ctypes.c_void_p
        lib.OpaEvalDocument.argtypes = [
            *(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
        ]
        self._lib = lib
        self._handle = lib.OpaNew()
        self._taken(lib.OpaAddPolicy(self._handle, b"placet", module.encode()))

    def _taken(self, pointer: int) -> bytes:
        answer = ctypes.string_at(pointer)
        self._lib.OpaFreeString(pointer)
        if b'"error"' in answer[:12]:
            raise RuntimeError(answer.decode())
        return answer

    def evaluate(self, facts: bytes) -> bytes:
        """Evaluate `data.placet.results` on JSON text; return the library's JSON answer unread."""
        return self._taken(self._lib.OpaEvalDocument(self._handle, b"placet.results", facts, 0, 0))

    def outcomes(self, facts: bytes) -> dict[str, Any]:
        """Return the outcome of each rule."""
        found: dict[str, Any] = json.loads(self.evaluate(facts))["result"][0]["expressions"][0][
            "value"
        ]
        return found

"""JSON pointers (RFC 6901) into facts, with `*` standing for every index of a list.

    find({"a": [{"b": 1}, {}]}, ("a", "*", "b"))  ->  values [1], missing ["/a/1/b"]

Fact names hold neither `/` nor `~`, so no escapes are needed; `split` refuses them.
Source: RFC 6901 (2013).
"""

from typing import Any

Path = tuple[str, ...]


def split(pointer: str) -> Path:
    """Split a pointer into its parts; "" is the whole document.

    Raises:
        ValueError: it does not start with `/`, or holds an escape.
    """
    if pointer == "":
        return ()
    if not pointer.startswith("/") or "~" in pointer:
        raise ValueError(f"pointer `{pointer}`: expected `/name/name`, without `~`")
    return tuple(pointer[1:].split("/"))


def join(path: tuple[str | int, ...]) -> str:
    """Write a path as a pointer."""
    return "".join(f"/{part}" for part in path)


def missing(document: Any, path: Path) -> list[str]:
    """List where `path` meets an absent or null member, as pointers; empty when all is known.

    A list without elements misses nothing: `minItems` in the rule says whether that is enough.
    """
    found: list[str] = []
    if not _is_there(document, path):
        _walk(document, path, "", found)
    return found


def _is_there(node: Any, path: Path) -> bool:
    """Say whether nothing is missing, without spelling out where one is; False for any `*`."""
    for part in path:
        node = node.get(part) if type(node) is dict else None
        if node is None:
            return False
    return node is not None


def _walk(node: Any, path: Path, at: str, found: list[str]) -> None:
    for depth, part in enumerate(path):
        if part == "*":
            if not isinstance(node, list):
                found.append(at)
                return
            for index, item in enumerate(node):
                _walk(item, path[depth + 1 :], f"{at}/{index}", found)
            return
        at = f"{at}/{part}"
        node = node.get(part) if isinstance(node, dict) else None
        if node is None:
            found.append(at)
            return
    if node is None:
        found.append(at)


def get(document: Any, pointer: str) -> Any:
    """Return the value at a pointer without `*`, or None where there is none."""
    node = document
    for part in split(pointer):
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


def put(document: Any, pointer: str, value: Any) -> None:
    """Set the value at a pointer, in place; its parent must exist.

    Raises:
        ValueError: the parent is not there, or is neither an object nor a list.
    """
    *head, last = split(pointer)
    parent = get(document, join(tuple(head)))
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and last.isdigit() and int(last) <= len(parent):
        parent[int(last) : int(last) + 1] = [value]
    else:
        raise ValueError(f"pointer `{pointer}`: nothing there to set")


def drop(document: Any, pointer: str) -> None:
    """Remove the member at a pointer, in place.

    Raises:
        ValueError: there is no such member.
    """
    *head, last = split(pointer)
    parent = get(document, join(tuple(head)))
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list) and last.isdigit() and int(last) < len(parent):
        del parent[int(last)]
    else:
        raise ValueError(f"pointer `{pointer}`: nothing there to remove")


def pattern_of(pointer: str) -> str:
    """Replace every index by `*`: `/datasets/1/region` becomes `/datasets/*/region`."""
    return join(tuple("*" if part.isdigit() else part for part in split(pointer)))


def fill(pattern: str, pointer: str) -> str:
    """Put the indexes of `pointer` in place of the `*` of `pattern`, in order."""
    indexes = iter([part for part in split(pointer) if part.isdigit()])
    return join(tuple(next(indexes, part) if part == "*" else part for part in split(pattern)))

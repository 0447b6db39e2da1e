"""Cells: the smallest parts of the facts that something looks at.

A cell is a path such as `compute.gpus` or `datasets.*.licence`. Rules and derived facts are pure
functions of the cells they look at, so what they answered is remembered under the keys of these
cells; a job with another id, or a data set with another digest, asks nothing anew.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from policies.facts import Checked
from policies.memory import Memory, key_of
from policies.pointers import Path


def look(node: Any, path: Path) -> object:
    """Return what a path meets; a tuple, which JSON has none of, where it breaks off."""
    for depth, part in enumerate(path):
        if part == "*":
            if type(node) is not list:
                return (depth, node)
            rest = path[depth + 1 :]
            return [look(item, rest) for item in node]
        if type(node) is not dict:
            return (depth, node)
        if part not in node:
            return (depth,)
        node = node[part]
    return node


def part(node: Any, paths: Sequence[Path]) -> Any:
    """Return a copy of a value with nothing in it but what `paths` meet."""
    if not all(paths):  # one of them ends here
        return node
    if type(node) is list:
        inside = [path[1:] for path in paths if path[0] == "*"]
        return [part(item, inside) for item in node] if inside else []
    if type(node) is not dict:
        return node
    names = {path[0] for path in paths} & node.keys()
    return {name: part(node[name], [p[1:] for p in paths if p[0] == name]) for name in names}


class Cells:
    """Says under which keys the cells of facts are known.

    The keys of a member are remembered under its bytes, since most members come again.
    """

    def __init__(self, cells: Iterable[Path]) -> None:
        self.cells = sorted(set(cells))
        """The cells in the order of their keys; none of them is the whole of the facts."""
        names = sorted({cell[0] for cell in self.cells})
        self._members = [
            (name, [cell for cell in self.cells if cell[0] == name], Memory[tuple[bytes, ...]]())
            for name in names
        ]

    def keys(self, checked: Checked) -> list[bytes]:
        """Return the key of each cell."""
        found: list[bytes] = []
        for name, cells, memory in self._members:
            member = checked.members.get(name, b"")
            keys = memory.get(member)
            if keys is None:
                keys = tuple([key_of(look(checked.facts, cell)) for cell in cells])
                memory.keep(member, keys)
            found += keys
        return found

    def picker(self, cells: Iterable[Path]) -> Callable[[Sequence[bytes]], tuple[bytes, ...]]:
        """Return a function that picks the keys of some of the cells."""
        return picker([self.cells.index(cell) for cell in cells])


def picker(places: Sequence[int]) -> Callable[[Sequence[bytes]], tuple[bytes, ...]]:
    """Return a function that picks keys by their places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda keys: tuple([keys[place] for place in places])

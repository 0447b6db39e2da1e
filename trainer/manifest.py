"""Which bytes a run works on: the dataset manifest and the files manifest; standard library only.

A dataset version, `placet.dataset/1`:

    {"format":"placet.dataset/1","licence":"Apache-2.0","name":"help desk",
     "objects":[{"digest":"sha256:…","rows":360,"size_bytes":104211,"uri":"s3://ward/a.jsonl"}],
     "rows_format":"chat-jsonl"}

`rows_format` is one of `ROWS_FORMATS`; the trainer learns from `chat-jsonl` alone, and the others
are registered, hashed and looked through without being trained on.

Every file under a directory, `placet.files/1`, sorted by path:

    {"files":[{"digest":"sha256:…","path":"config.json","size_bytes":704}],
     "format":"placet.files/1"}
"""

from dataclasses import asdict, dataclass

from trainer.strict import ContractError, Digest, Reader, as_json, canonical, parse

DATASET_FORMAT = "placet.dataset/1"
FILES_FORMAT = "placet.files/1"
CHAT_ROWS = "chat-jsonl"
ROWS_FORMATS = (CHAT_ROWS, "jsonl", "csv", "parquet", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetObject:
    """One object of a dataset: its URI, the digest and size (bytes) of its bytes, its rows."""

    uri: str
    digest: Digest
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetManifest:
    """An immutable dataset version, `placet.dataset/1`.

    Rows of `chat-jsonl` are one JSON object a line,
    `{"id":"q-17","group":"q","language":"en","messages":[{"role":"user","content":"…"},…]}`, where
    rows of one group never stand on both sides of the split between training and evaluation. Of
    `jsonl` a row is a line with any JSON value, of `csv` a record with the names if there are any,
    of `parquet` a row of all columns, and of `text` a line.

    Attributes:
        name: What people call it, 1 to 200 characters.
        licence: SPDX expression, or words, 1 to 200 characters.
        rows_format: How rows are written, one of `ROWS_FORMATS`; the same in all objects.
        objects: 1 to 10,000 objects, in reading order, each URI once.
    """

    name: str
    licence: str
    rows_format: str
    objects: tuple[DatasetObject, ...]

    @staticmethod
    def from_bytes(data: bytes) -> "DatasetManifest":
        """Read a manifest.

        Raises:
            ContractError: when a member is missing, unknown or out of range.
        """
        r = Reader(parse(data, max_bytes=8_388_608), "dataset")
        r.constant("format", DATASET_FORMAT)
        rows_format = r.choice("rows_format", ROWS_FORMATS)
        objects = []
        for item in r.items("objects", fewest=1, most=10_000):
            o = Reader(item, "dataset.objects")
            objects.append(
                DatasetObject(
                    uri=o.uri("uri"),
                    digest=o.digest("digest"),
                    size_bytes=o.integer("size_bytes", 1),
                    rows=o.integer("rows", 1),
                )
            )
            o.close()
        if len({o.uri for o in objects}) != len(objects):
            raise ContractError("expected each object of `dataset.objects` once, got one twice")
        manifest = DatasetManifest(
            name=r.text("name"),
            licence=r.text("licence"),
            rows_format=rows_format,
            objects=tuple(objects),
        )
        r.close()
        return manifest

    def to_bytes(self) -> bytes:
        """Write the canonical bytes."""
        members = {
            "format": DATASET_FORMAT,
            "name": self.name,
            "licence": self.licence,
            "rows_format": self.rows_format,
            "objects": [asdict(o) for o in self.objects],
        }
        return canonical(as_json(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file: its relative POSIX path, the digest and size (bytes) of its bytes."""

    path: str
    digest: Digest
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesManifest:
    """Every file under a directory, sorted by path; the digest of its bytes names a base model."""

    files: tuple[FileEntry, ...]

    @staticmethod
    def from_bytes(data: bytes) -> "FilesManifest":
        """Read a manifest.

        Raises:
            ContractError: when a member is missing, unknown or out of range, or out of order.
        """
        r = Reader(parse(data, max_bytes=8_388_608), "files")
        r.constant("format", FILES_FORMAT)
        files = []
        for item in r.items("files", fewest=1, most=10_000):
            f = Reader(item, "files.files")
            files.append(
                FileEntry(
                    path=f.path("path"),
                    digest=f.digest("digest"),
                    size_bytes=f.integer("size_bytes", 0),
                )
            )
            f.close()
        r.close()
        paths = [f.path for f in files]
        if paths != sorted(set(paths)):
            raise ContractError(
                "expected `files.files` sorted by path and each once, got otherwise"
            )
        return FilesManifest(files=tuple(files))

    def to_bytes(self) -> bytes:
        """Write the canonical bytes."""
        members = {"format": FILES_FORMAT, "files": [asdict(f) for f in self.files]}
        return canonical(as_json(members))

"""Every setting, read once in a composition root and passed down as values. Prefix ``PLACET_``.

Nothing here has a default that permits: without a declared site country the operator's own machine
has no known country, and the gate denies.
"""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Country = Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")]
_PLACEHOLDERS = {
    "changeme",
    "change-me",
    "secret",
    "password",
    "placet",
    "postgres",
    "minio",
    "admin",
}


class Settings(BaseSettings):
    """The settings of one installation."""

    model_config = SettingsConfigDict(
        env_prefix="PLACET_", frozen=True, extra="forbid", env_ignore_empty=True
    )

    data_dir: Path = Field(
        default=Path(".placet"),
        description="Folder for everything the embedded defaults keep: database, objects, keys.",
    )
    database_url: str = Field(
        default="",
        repr=False,
        description="SQLAlchemy URL; `postgresql+psycopg://…` or `sqlite:///…`."
        " Default: SQLite in the data folder.",
    )
    objects_uri: str = Field(
        default="",
        description="Where outputs and bundles go: `s3://bucket/prefix` or `file:///folder`."
        " Default: a folder in the data folder.",
    )
    object_roots: tuple[str, ...] = Field(
        default=(),
        description="Folders from which callers may register `file://` data sets and base models.",
    )
    source_buckets: tuple[str, ...] = Field(
        default=(),
        description="Buckets from which callers may register data sets and base models.",
    )
    s3_endpoint: str = Field(default="", description="S3 endpoint URL, for instance OVHcloud's.")
    s3_access_key: str = Field(default="", description="S3 access key id.")
    s3_secret_key: SecretStr = Field(default=SecretStr(""), description="S3 secret key.")
    s3_region: str = Field(
        default="us-east-1", description="Region name that requests are signed for."
    )
    tracking_uri: str = Field(
        default="",
        repr=False,
        description="MLflow tracking URI. Default: SQLite in the data folder.",
    )
    origin: str = Field(
        default="placet.localhost/log",
        description="Name of the audit log, in its checkpoints for ever. No personal data.",
        pattern=r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[A-Za-z0-9._-]+)+$",
    )
    log_key: Path | None = Field(
        default=None, description="PEM file of the log's Ed25519 key. Default: in the data folder."
    )
    permit_key: Path | None = Field(
        default=None,
        description="PEM file of the permit issuer's key. Default: in the data folder.",
    )
    seal_key: Path | None = Field(
        default=None, description="File of the 32-byte key-encryption key for personal values."
    )
    guard_file: Path | None = Field(
        default=None,
        description="File outside the database that remembers the last signed checkpoint."
        " Put it on another volume. Default: in the data folder.",
    )
    witness_policy: Path | None = Field(
        default=None,
        description="Policy file (C2SP tlog-policy): which witnesses cosign each checkpoint before"
        " it is published, and how many must. Unset: none is asked.",
    )
    site_country: Country | None = Field(
        default=None,
        description="ISO country of this machine, as the operator declares it. Unset: unknown,"
        " and unknown is denied.",
    )
    site_declared_on: str | None = Field(
        default=None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="Date of that declaration."
    )
    site_declared_by: str = Field(
        default="operator", pattern=r"^[a-z0-9_-]{1,64}$", description="Who declares it; a code."
    )
    site_parent_country: Country | None = Field(
        default=None, description="ISO country of the operator's ultimate parent. Unset: unknown."
    )
    site_establishments: tuple[Country, ...] | None = Field(
        default=None, description="Countries where the operator's group has establishments."
    )
    site_hds_self_hosted: bool = Field(
        default=False,
        description="Whether the operator is a care establishment that hosts its own patients'"
        " data itself (FR CSP art. L.1111-8).",
    )
    site_hosts: tuple[str, ...] = Field(
        default=(), description="Host names of endpoints that stand on the operator's own site."
    )
    site_price_cents_per_hour: int | None = Field(
        default=None, ge=0, description="What an hour on this machine costs, in euro cents."
    )
    policy_dirs: tuple[Path, ...] = Field(
        default=(), description="Rule packs. Default: all that ship (`policies/packs`)."
    )
    policy_keys: Path | None = Field(
        default=None,
        description="File with the public keys of the policy's maintainers, one vkey a line."
        " Unset: no bundle is ever put in force.",
    )
    reference_dir: Path | None = Field(
        default=None,
        description="Folder with own tables of reference data, laid over those that ship.",
    )
    approval_hours: int = Field(
        default=72, ge=1, le=720, description="Hours until an undecided or unused approval expires."
    )
    permit_minutes: int = Field(
        default=30, ge=1, le=1440, description="Minutes within which a permit must be used."
    )
    provider_name: str = Field(default="", description="Legal name of the AI system's provider.")
    contact: str = Field(default="", description="Public contact of the provider.")
    trainer_threads: int = Field(default=2, ge=1, le=256, description="CPU threads of a local run.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=1, le=65535, description="Port to listen on.")
    public_url: str = Field(
        default="", description="Address people reach the service at. Default: http://host:port."
    )
    max_body_bytes: int = Field(
        default=1_048_576, ge=1024, le=67_108_864, description="Largest request body, in bytes."
    )
    max_pending_entries: int = Field(
        default=20_000,
        ge=100,
        le=10_000_000,
        description="Entries that may wait for their place in the log before writes get 503.",
    )
    worker_interval_s: float = Field(
        default=1.0, gt=0, le=60, description="Seconds between two passes of the worker."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="Operator log format.")

    @field_validator("s3_secret_key")
    @classmethod
    def _no_placeholder(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value().lower() in _PLACEHOLDERS:
            raise ValueError("is a placeholder everyone knows; set a secret of your own")
        return value

    @field_validator("database_url")
    @classmethod
    def _database(cls, value: str) -> str:
        if value and not value.startswith(("postgresql+psycopg://", "sqlite:///")):
            raise ValueError("expected `postgresql+psycopg://…` or `sqlite:///…`")
        if (urlsplit(value).password or "").lower() in _PLACEHOLDERS:
            raise ValueError("holds a placeholder password; set a secret of your own")
        return value

    @field_validator("objects_uri")
    @classmethod
    def _objects(cls, value: str) -> str:
        if value and not value.startswith(("s3://", "file:///")):
            raise ValueError("expected `s3://bucket/prefix` or `file:///folder`")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _declared_site(self) -> Self:
        if self.site_country is not None and self.site_declared_on is None:
            raise ValueError(
                "PLACET_SITE_COUNTRY is set without PLACET_SITE_DECLARED_ON;"
                " a declaration needs its date (YYYY-MM-DD)"
            )
        return self

    @property
    def home(self) -> Path:
        """The data folder as an absolute path."""
        return self.data_dir.expanduser().resolve()

    @property
    def database(self) -> str:
        """The database URL in force."""
        return self.database_url or f"sqlite:///{self.home / 'placet.db'}"

    @property
    def objects(self) -> str:
        """The object prefix in force."""
        return self.objects_uri or (self.home / "objects").as_uri()

    @property
    def tracking(self) -> str:
        """The MLflow tracking URI in force."""
        return self.tracking_uri or f"sqlite:///{self.home / 'mlflow.db'}"

    @property
    def url(self) -> str:
        """The address people reach the service at."""
        return self.public_url or f"http://{self.host}:{self.port}"

    def key_file(self, name: Literal["log", "permit", "seal"]) -> Path:
        """Where a key lies; three keys for three purposes."""
        chosen = {"log": self.log_key, "permit": self.permit_key, "seal": self.seal_key}[name]
        return chosen or self.home / "keys" / f"{name}.{'bin' if name == 'seal' else 'pem'}"

    @property
    def guard(self) -> Path:
        """Where the signer guard lies."""
        return self.guard_file or self.home / "guard" / "signer.json"

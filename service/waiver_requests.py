"""What callers may send about waivers. Unknown members are refused; instants have one spelling."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.requests import Code, Reference, Text

Reason = Annotated[Text, StringConstraints(min_length=1)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WaiverRequest(_Closed):
    """An exception from one rule that the latest decision found violated."""

    rule: Code = Field(description="Id of the violated rule.", examples=["budget.limit"])
    category: Literal["waiver", "mitigated"] = Field(
        default="waiver", description="`mitigated`: the risk is met in another way."
    )
    reason: Reason = Field(
        description="Why, for those who decide. Kept beside the log, erasable.",
        examples=["The grant arrives on Monday; the controller has seen the letter."],
    )
    ticket: Reference = Field(
        description="Where the case is kept; no person's name.", examples=["GRC-1042"]
    )
    not_before: str | None = Field(
        default=None,
        max_length=40,
        description="Start, `YYYY-MM-DDThh:mm:ssZ`; now when absent.",
    )
    expires_at: str = Field(
        max_length=40,
        description="End, `YYYY-MM-DDThh:mm:ssZ`; at this instant it is over.",
        examples=["2026-12-07T00:00:00Z"],
    )


class WaiverDecision(_Closed):
    """What an officer says about a requested waiver."""

    outcome: Literal["approved", "refused"]
    reason: Text = Field(
        default="", description="Needed for a refusal. Kept beside the log, erasable."
    )


class WaiverRevocation(_Closed):
    """The end of a waiver before its time."""

    reason: Reason = Field(description="Why. Kept beside the log, erasable.")

"""Turn a conversation into token ids and say which of them the model is taught to produce.

The tokenizer's own chat template renders the text. For each assistant turn the template is asked
twice: for the conversation before it, with the generation prompt (what the model will be given when
it is used), and for the conversation up to and including it. The second text must continue the
first; what it adds, up to and including the end-of-sequence token, is supervised. So no template
needs `{% generation %}` markers, an injected system prompt stays context, and the end is learned
even where the padding token is the same token. Each piece is tokenized on its own, as it will be in
use, and the template alone decides about a beginning-of-sequence token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.intake import Message, Row
from trainer.refusal import Reason, RefusedError

PROBE = (
    Message("system", "be brief"),
    Message("user", "ping"),
    Message("assistant", "pong"),
    Message("user", "again"),
    Message("assistant", "pong pong"),
)


class Tokenizer(Protocol):
    """What we use of a Hugging Face tokenizer."""

    eos_token_id: int
    bos_token_id: int | None
    all_special_tokens: list[str]

    def __len__(self) -> int:
        """Return the size of the vocabulary."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Render messages as text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokenize text."""
        ...

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of ids."""
        ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """Token ids of one row, and for each id whether it is supervised (equal lengths)."""

    row_id: str
    ids: tuple[int, ...]
    supervised: tuple[bool, ...]

    @property
    def num_supervised(self) -> int:
        """Count the supervised tokens."""
        return sum(self.supervised)


def render(row: Row, tokenizer: Tokenizer) -> Rendered:
    """Render one row.

    Raises:
        RefusedError: when the template does not continue its own prefix, drops an answer or its
            end, or starts twice, or when the row holds text that the tokenizer would read as a
            control token.
    """
    for message in row.messages:
        token = next((t for t in tokenizer.all_special_tokens if t in message.content), None)
        if token is not None:
            raise RefusedError(
                Reason.DATASET_ROW,
                f"row {row.id}: expected plain text, got the control token {token!r}; remove it",
            )
    ids, supervised = _pieces(row.id, row.messages, tokenizer)
    if tokenizer.bos_token_id is not None and ids[:2] == [tokenizer.bos_token_id] * 2:
        raise _template_error(row.id, "one beginning-of-sequence token", "two")
    return Rendered(row.id, tuple(ids), tuple(supervised))


def _pieces(
    row_id: str, messages: Sequence[Message], tokenizer: Tokenizer
) -> tuple[list[int], list[bool]]:
    ids: list[int] = []
    supervised: list[bool] = []
    done = ""  # text that is tokenized already
    for place, message in enumerate(messages):
        if message.role != "assistant":
            continue
        before = _text(messages[:place], tokenizer, prompt=True)
        after = _text(messages[: place + 1], tokenizer, prompt=False)
        if not before.startswith(done) or not after.startswith(before):
            raise _template_error(row_id, "each turn to continue the text before it", "other text")
        context = tokenizer.encode(before.removeprefix(done), add_special_tokens=False)
        answer = tokenizer.encode(after.removeprefix(before), add_special_tokens=False)
        if tokenizer.eos_token_id not in answer:
            raise _template_error(row_id, "an end-of-sequence token after the answer", "none")
        end = answer.index(tokenizer.eos_token_id) + 1
        if message.content.strip() not in tokenizer.decode(answer[:end]):
            raise _template_error(row_id, "the whole answer before its end", "a part of it")
        rest = tokenizer.decode(answer[end:])
        # What follows the end belongs to the next prompt: tokenize it with that prompt.
        done = after.removesuffix(rest) if rest else after
        ids += context + answer[:end]
        supervised += [False] * len(context) + [True] * end
    return ids, supervised


def _text(messages: Sequence[Message], tokenizer: Tokenizer, *, prompt: bool) -> str:
    conversation = [{"role": m.role, "content": m.content} for m in messages]
    return tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=prompt)


def _template_error(row_id: str, expected: str, got: str) -> RefusedError:
    return RefusedError(
        Reason.TEMPLATE,
        f"row {row_id}: expected the chat template to give {expected}, got {got}; "
        "use a base model with a plain chat template",
    )

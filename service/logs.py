"""Operator logs: one JSON object a line, ids and codes only, no payload, no local values."""

import logging
import sys

import structlog


def configure(log_format: str) -> None:
    """Set up logging once, in a composition root; `json` or `text`, on standard error."""
    render: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if log_format == "text":
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if log_format == "text" else [structlog.processors.format_exc_info]),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Looked up at each line: a stream that was replaced or closed must not be written to.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )

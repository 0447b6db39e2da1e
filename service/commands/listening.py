"""Taking a port before anything starts, so that a taken one is one line and not a traceback."""

import socket

from service.commands.errors import CommandError


def listening(host: str, port: int, *, otherwise: str) -> socket.socket:
    """Listen on a port.

    Args:
        host: the address; one with a colon is IPv6.
        port: the port.
        otherwise: what to set when it cannot be had.

    Raises:
        CommandError: it is taken, or is not ours to take.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CommandError(
            f"cannot listen on {host}:{port} ({error.strerror}); set {otherwise}"
        ) from error
    return listener

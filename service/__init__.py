"""ROOM: the running system. HTTP API, worker, command line, and every edge to the outside."""

"""`placet demo`: the whole product on this machine."""

import argparse

from service.commands.errors import Status
from service.demo.walk import Wishes, run


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 when every step did what it claims."""
    run(Wishes(folder=arguments.folder, cache=arguments.cache, steps=arguments.steps))
    return Status.OK

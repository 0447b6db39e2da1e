"""The commands of `placet`, one module for each kind of work, imported when it is chosen."""

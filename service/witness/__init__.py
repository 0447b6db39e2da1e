"""A small witness: it remembers the newest checkpoint of each log and cosigns what extends it.

It runs apart from the service that it watches: an own process, an own folder with an own key, best
on another host under another person's hands. A witness that whoever runs the log can also restore
from a backup proves little; what it proves is worth what separates it from the log.
"""

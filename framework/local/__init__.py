"""An app on this machine: an in-process DynamoDB, and a poller that drives its functions as Lambda does."""

from framework.local.engine import Drained, Local, OnProgress

__all__ = ["Drained", "Local", "OnProgress"]

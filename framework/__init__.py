"""Streamfold: derived data kept right from DynamoDB streams, exactly once, for a fraction of the write cost.

Everything that a handler needs is imported from here. Neither boto3 nor the CDK is loaded by it.
"""

import framework.startup  # first, for what follows loads without a search for garbage  # noqa: F401

# isort: split
from framework.aggregation import Aggregation
from framework.app import App
from framework.conditions import attr
from framework.errors import (
    BadRecordError,
    BadValueError,
    ConfigurationError,
    DeclarationError,
    DeliveryError,
    EventError,
    ReadError,
    SourceError,
    StreamfoldError,
)
from framework.measures import Average, Count, Max, Min, Sum
from framework.reading import Aggregate, Page, Ranking, Series
from framework.sparse_index import SparseIndex
from framework.tables import Index, Table, at_least
from framework.ttl_archive import TtlArchive
from framework.windows import AllTime, Daily, Hourly, Monthly, Weekly, Yearly

__all__ = [
    "Aggregate",
    "Aggregation",
    "AllTime",
    "App",
    "Average",
    "BadRecordError",
    "BadValueError",
    "ConfigurationError",
    "Count",
    "Daily",
    "DeclarationError",
    "DeliveryError",
    "EventError",
    "Hourly",
    "Index",
    "Max",
    "Min",
    "Monthly",
    "Page",
    "Ranking",
    "ReadError",
    "Series",
    "SourceError",
    "SparseIndex",
    "StreamfoldError",
    "Sum",
    "Table",
    "TtlArchive",
    "Weekly",
    "Yearly",
    "at_least",
    "attr",
]

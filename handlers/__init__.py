"""The handlers that are deployed: one module for each, listed in `handlers/app.py`."""

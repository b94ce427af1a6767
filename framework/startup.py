"""How the function loads in Lambda: without a search for garbage.

The SDK, its model of the service and our modules are a hundred thousand objects, and all of them stay. Python would
look through them dozens of times while they are made, which is a fifth of a cold start, and then again and again in
the function's life.

Imported before all else, by the package. Only the process whose handler is ours is touched: `_HANDLER` names it
(Lambda developer guide, "Using Lambda environment variables"). What it starts inherits that name, and with it the
number of the process that came first.
"""

from __future__ import annotations

import gc
import os

__all__ = ["loaded"]

_OURS = str(os.getpid())
_PAUSED = (
    os.environ.get("_HANDLER") == "framework.runtime.handler"
    and os.environ.setdefault("STREAMFOLD_PROCESS", _OURS) == _OURS
)

if _PAUSED:
    gc.disable()


def loaded() -> None:
    """From here on, look for garbage again, but not among what is there now."""
    if _PAUSED:
        gc.freeze()
        gc.enable()

"""What holds for the tests of infra; set before the CDK's library starts its Node, which keeps its environment."""

from __future__ import annotations

import os

# The library's own validation of a template takes 10 s the first time. It is left on where `infra.app` runs as users
# run it, and the templates go through cfn-lint.
os.environ["CDK_VALIDATION"] = "false"

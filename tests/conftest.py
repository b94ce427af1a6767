"""What holds for every test: no way to a real AWS account, and how hard Hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Set at import, before any test module can make a client. Dropping every AWS variable also drops the profile,
# role and endpoint of whoever runs the tests; the files are named so that ~/.aws is not read either.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_SESSION_TOKEN="testing",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
)

# Choose with HYPOTHESIS_PROFILE; `ci` is the default where CI is set. No deadline: a shared machine has slow
# moments.
settings.register_profile("dev", max_examples=100, deadline=None)
settings.register_profile(
    "ci", max_examples=500, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

"""What is deployed: the function's bundle and its stacks. The only package that knows the CDK."""

import os

# The CDK's library warns of an old Node in a banner of ten lines, before the one sentence that a user has to read; its
# command warns as well. The value names the versions of Node that may be old; a "1" would silence nothing.
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20,22,24"

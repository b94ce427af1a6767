"""Sessions that are over: archived in S3 when their time to live removes them, by the month in which they began.

Items of the table `Sessions` have the key `UserId`, `SessionId`, and `ExpiresAt`, their time to live. DynamoDB deletes
them some time after that, for nothing. Here each goes into the archive once, without its token, and stays for ten
years.
"""

from framework import Monthly, Table, TtlArchive

sessions = Table("Sessions", pk="UserId", sk="SessionId", ttl="ExpiresAt")


class ExpiredSessions(TtlArchive):
    """What users did, after their sessions are gone from the table."""

    name = "expired-sessions"
    source = sessions
    partition = Monthly("BeganAt")
    without = ("Token",)
    storage = {"GLACIER_IR": 90}  # noqa: RUF012 - read once, when the class is made
    delete_after = 3650

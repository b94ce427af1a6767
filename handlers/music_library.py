"""Monthly downloads of every song: the schema of AWS's guide on aggregation with a sparse index, to the letter.

Items of the table `MusicLibrary` have the key `songID`, `SK`. A download is an item whose `SK` begins with
`download-`, with its time in `Timestamp`. Its count is the item `(songID, "2018-01")` with `Month` and
`DownloadCount`, and the index `MonthDownloadsIndex` ranks a month's songs.
"""

from framework import Aggregation, Count, Index, Monthly, Table, attr

music = Table("MusicLibrary", pk="songID", sk="SK")


class MonthlyDownloads(Aggregation):
    """Downloads of every song in every calendar month."""

    name = "monthly-downloads"
    source = music
    where = attr("SK").begins_with("download-")
    group_by = "songID"
    window = Monthly("Timestamp")
    DownloadCount = Count()
    index = Index("MonthDownloadsIndex", pk="Month", sk="DownloadCount")

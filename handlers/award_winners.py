"""Award winners: the other example of AWS's guide on sparse indexes, to the letter.

Items of the table `GameScores` have the key `UserId`, `GameTitle`, and the user's `Wins` and `Losses` in the game. Only
champions carry `Award`; so the index of `Award` and `UserId` holds them and nobody else.
"""

from collections.abc import Mapping
from typing import Any

from framework import Index, SparseIndex, Table, attr

game_scores = Table("GameScores", pk="UserId", sk="GameTitle")


class AwardWinners(SparseIndex):
    """Who won ten times, and three times as often as not."""

    name = "award-winners"
    source = game_scores
    index = Index("AwardIndex", pk="Award", sk="UserId")
    when = attr("Wins").exists()
    include = ("TopScore",)

    @staticmethod
    def entry(item: Mapping[str, Any]) -> dict[str, str] | None:
        """The award of a user in a game, if there is one."""
        wins, losses = item["Wins"], item.get("Losses", 0)
        return {"Award": "Champ"} if wins >= 10 and wins >= 3 * losses else None

"""The app that is deployed: list a handler here and it is live with the next deployment."""

from framework import App
from handlers.music_library import MonthlyDownloads

app = App("music", [MonthlyDownloads])

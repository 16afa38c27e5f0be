"""How loud the present speech is against what this user is usually like: who sits further away is not the user.

Pure arithmetic on levels in dBFS. The usual level is learnt from turns that were answered; before the first one nothing
is said about loudness.
"""

from collections import deque

RECENT_WINDOWS = 20  # 640 ms of voice: who talks in the background does not hide who speaks up
NEWEST_SHARE = 0.3  # of a new turn in the usual level: a user who moves is followed within a few turns


class Loudness:
    """Levels of voiced windows, turn by turn."""

    def __init__(self) -> None:
        self._usual_db: float | None = None
        self._sum_db = 0.0
        self._windows = 0
        self._recent_db = deque[float](maxlen=RECENT_WINDOWS)

    def begin(self) -> None:
        """A turn begins."""
        self._sum_db, self._windows = 0.0, 0
        self._recent_db.clear()

    def voiced(self, level_db: float) -> None:
        """Another voiced window of the turn."""
        self._sum_db += level_db
        self._windows += 1
        self._recent_db.append(level_db)

    def learn(self) -> None:
        """The turn was the user's: remember how loud it was."""
        if not self._windows:
            return
        mean_db = self._sum_db / self._windows
        old_db = mean_db if self._usual_db is None else self._usual_db
        self._usual_db = old_db + NEWEST_SHARE * (mean_db - old_db)

    @property
    def relative_db(self) -> float:
        """The present turn's latest speech against the usual turn; 0 while either is unknown."""
        if self._usual_db is None or not self._recent_db:
            return 0.0
        return sum(self._recent_db) / len(self._recent_db) - self._usual_db

"""How long nobody has spoken since a reply was over, counted in the microphone's samples. Pure bookkeeping."""

from voice_agent.audio import MODEL_RATE_HZ, samples_to_ms


class Silence:
    """State: `_since` the sample at which the last reply was over and nothing has happened since; None otherwise."""

    def __init__(self) -> None:
        self._since: int | None = None

    def begin(self, sample: int) -> None:
        """A reply is over."""
        self._since = sample

    def broken(self) -> None:
        """Somebody has the floor."""
        self._since = None

    def longer_than(self, limit_ms: int, sample: int) -> int | None:
        """The sample it began with if it has lasted for so long by now; it then counts as broken."""
        since = self._since
        if since is None or samples_to_ms(sample - since, MODEL_RATE_HZ) < limit_ms:
            return None
        self._since = None
        return since

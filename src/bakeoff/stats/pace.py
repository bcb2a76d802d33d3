"""What trials take in money and time, by those that were run."""

from bakeoff._lib.value_object import value_object


@value_object
class Pace:
    """What some `trials` took in all, with roles and retries, as many at once as ran; None is unknown."""

    trials: int
    cost_usd: float | None = None
    seconds: float | None = None

    def of(self, trials: float) -> "Effort":
        """Return what so many *trials* like these would take."""
        if not self.trials:
            return Effort()
        share = trials / self.trials
        return Effort(
            cost_usd=None if self.cost_usd is None else self.cost_usd * share,
            seconds=None if self.seconds is None else self.seconds * share,
        )


@value_object
class Effort:
    """Money and time; None is unknown."""

    cost_usd: float | None = None
    seconds: float | None = None


NO_EFFORT = Effort()

"""When a run may end before all of its plan is run."""

from bakeoff._lib.noun import noun


@noun
class Adaptive:
    """Run until the candidates are told apart.

    Two of them are compared task by task until it is sure who is better or, with a `precision`,
    until their difference is known to within it. Tasks come in an order drawn from `seed`.
    """

    precision: float | None = None
    seed: int = 0

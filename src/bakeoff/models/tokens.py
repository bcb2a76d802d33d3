"""How many tokens a request will take, guessed before it goes."""

from bakeoff.core.outcome import Request, Usage

_CHARACTERS_PER_TOKEN = 4
_UNKNOWN_OUTPUT = 256.0
_NEW = 0.1  # the weight of the latest answer in the mean
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class TokenEstimate:
    """The prompt by its length; the answer by the ones before it, else by what it may be."""

    def __init__(self) -> None:
        self._output: float | None = None
        self.mean = _UNKNOWN_OUTPUT

    def of(self, request: Request) -> float:
        """Return the tokens that *request* will take, in and out."""
        letters = sum(len(message.content) for message in request.messages)
        return letters / _CHARACTERS_PER_TOKEN + (self._output or _allowed(request))

    def learn(self, usage: Usage) -> float | None:
        """Return what a request took, and remember it; None where that is unknown."""
        if usage.output_tokens is None:
            return None
        total = float(usage.output_tokens + (usage.input_tokens or 0))
        first = self._output is None
        self._output = _towards(self._output, usage.output_tokens)
        self.mean = total if first else _towards(self.mean, total)
        return total


def _towards(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _NEW * (value - mean)


def _allowed(request: Request) -> float:
    limits = (request.parameters.get(name) for name in _LIMITS)
    return next((float(n) for n in limits if isinstance(n, int) and n > 0), _UNKNOWN_OUTPUT)

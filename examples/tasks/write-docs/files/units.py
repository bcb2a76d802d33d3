FACTORS = {
    "mm": 0.001,
    "cm": 0.01,
    "m": 1.0,
    "km": 1000.0,
    "in": 0.0254,
    "ft": 0.3048,
    "mi": 1609.344,
}


def convert(value, source, target):
    for unit in (source, target):
        if unit not in FACTORS:
            raise KeyError(f"unknown unit {unit!r}")
    return value * FACTORS[source] / FACTORS[target]


def parse(text):
    number, _, unit = text.strip().partition(" ")
    if unit.strip() not in FACTORS:
        raise ValueError(f"no length: {text!r}")
    return float(number), unit.strip()


def best_unit(metres):
    for unit in ("km", "m", "cm"):
        if abs(metres) >= FACTORS[unit]:
            return unit
    return "mm"

"""What things cost."""

from decimal import ROUND_HALF_UP, Decimal

VAT_PERCENT = {"book": 7, "tool": 19}


def rounded(amount):
    """Return *amount* in whole cents, halves away from zero."""
    return Decimal(amount).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


def with_vat(net, kind):
    """Return what a customer pays for something of this *kind*."""
    return rounded(Decimal(net) * (100 + VAT_PERCENT[kind]) / 100)


def discounted(amount, count):
    """Return *amount* less 5 % from ten pieces on, less 10 % from a hundred on."""
    percent = 10 if count >= 100 else 5 if count >= 10 else 0
    return rounded(Decimal(amount) * (100 - percent) / 100)

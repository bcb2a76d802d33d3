"""A small shop: prices, stock and orders."""

from shop.orders import Order
from shop.prices import VAT_PERCENT, discounted, rounded, with_vat
from shop.stock import OutOfStockError, Stock

__all__ = [
    "VAT_PERCENT",
    "Order",
    "OutOfStockError",
    "Stock",
    "discounted",
    "rounded",
    "with_vat",
]

"""Reports on orders."""


def text_report(orders):
    lines = []
    total = 0
    for order in orders:
        amount = 0
        for item in order["items"]:
            price = item["price"] * item["count"]
            if item["count"] >= 10:
                price = price * 0.9
            amount = amount + price
        if order.get("member"):
            amount = amount * 0.95
        total = total + amount
        name = order["name"]
        if len(name) > 12:
            name = name[:11] + "."
        lines.append(name.ljust(12) + " " + f"{amount:.2f}".rjust(10))
    lines.append("total".ljust(12) + " " + f"{total:.2f}".rjust(10))
    return "\n".join(lines)


def csv_report(orders):
    lines = ["name,amount"]
    total = 0
    for order in orders:
        amount = 0
        for item in order["items"]:
            price = item["price"] * item["count"]
            if item["count"] >= 10:
                price = price * 0.9
            amount = amount + price
        if order.get("member"):
            amount = amount * 0.95
        total = total + amount
        name = order["name"]
        if "," in name or '"' in name:
            name = '"' + name.replace('"', '""') + '"'
        lines.append(name + "," + f"{amount:.2f}")
    lines.append("total," + f"{total:.2f}")
    return "\n".join(lines)

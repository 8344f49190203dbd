"""What did each region sell, which way does it go, which orders look wrong?"""

import csv
import io
import statistics
from collections import Counter, defaultdict
from datetime import date
from decimal import Decimal

ORDERS = """\
day,region,product,units,price
2025-01-07,North,kettle,12,24.90
2025-01-15,South,toaster,7,39.50
2025-01-28,West,kettle,9,24.90
2025-02-03,North,mixer,5,89.00
2025-02-11,West,toaster,14,39.50
2025-02-19,South,kettle,10,24.90
2025-03-04,West,mixer,6,89.00
2025-03-12,North,toaster,11,39.50
2025-03-21,South,mixer,4,89.00
2025-04-02,North,kettle,13,24.90
2025-04-16,West,kettle,140,24.90
2025-04-25,South,toaster,9,39.50
2025-05-08,North,mixer,8,89.00
2025-05-14,South,kettle,12,24.90
2025-05-30,West,mixer,7,89.00
2025-06-05,West,toaster,15,39.50
2025-06-17,North,toaster,12,39.50
2025-06-26,South,mixer,6,89.00
"""


def read_orders(text):
    for row in csv.DictReader(io.StringIO(text)):
        units, price = int(row["units"]), Decimal(row["price"])
        yield date.fromisoformat(row["day"]), row["region"], row["product"], units, units * price


def outliers(orders):
    """Orders whose units are far from the usual, by the median deviation."""
    units = [order[3] for order in orders]
    middle = statistics.median(units)
    spread = statistics.median(abs(n - middle) for n in units)
    return [order for order in orders if abs(order[3] - middle) > 6 * spread]


def main():
    orders = list(read_orders(ORDERS))
    suspects = outliers(orders)
    usual = [order for order in orders if order not in suspects]
    regions, months, products = defaultdict(Decimal), defaultdict(Decimal), Counter()
    for day, region, product, units, amount in usual:
        regions[region] += amount
        months[day.replace(day=1)] += amount
        products[product] += units

    total = sum(regions.values())
    print(f"{len(usual)} orders, {total:,.2f} in total\n")
    print(f"{'Region':<8}{'Sales':>12}{'Share':>8}")
    for region, amount in sorted(regions.items(), key=lambda item: -item[1]):
        print(f"{region:<8}{amount:>12,.2f}{amount / total:>8.1%}")

    print(f"\n{'Month':<8}{'Sales':>12}{'Change':>8}")
    before = None
    for month, amount in sorted(months.items()):
        change = f"{amount / before - 1:+.1%}" if before else "-"
        bar = "#" * round(amount / 50)
        print(f"{month:%b %Y}{amount:>12,.2f}{change:>8}  {bar}")
        before = amount

    best, units = products.most_common(1)[0]
    mean = statistics.mean(order[4] for order in usual)
    print(f"\nBest seller: {best}, {units} units; an order is {mean:,.2f} on average")
    for day, region, product, units, amount in suspects:
        print(f"Left out, please check: {day} {region}, {units} x {product} for {amount:,.2f}")


if __name__ == "__main__":
    main()

"""Sorting and hashing."""

import hashlib
import random


def work():
    numbers = random.Random(1).sample(range(10**6), 60_000)
    numbers.sort()
    by_text = sorted(numbers, key=str)
    return hashlib.sha256(repr(by_text).encode()).hexdigest()

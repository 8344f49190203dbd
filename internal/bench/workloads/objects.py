"""Attributes, dictionaries and lists."""


class Account:
    def __init__(self, name):
        self.name, self.balance, self.log = name, 0, []

    def add(self, amount):
        self.balance += amount
        self.log.append(amount)


def work():
    accounts = {str(i): Account(str(i)) for i in range(500)}
    for i in range(100_000):
        accounts[str(i % 500)].add(i)
    return sum(a.balance for a in accounts.values())

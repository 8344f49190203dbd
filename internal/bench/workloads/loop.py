"""The plainest loop there is."""


def work():
    total = 0
    for i in range(10**6):
        total += i
    return total

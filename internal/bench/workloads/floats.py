"""Floating point: three bodies under gravity."""


def work():
    bodies = [[0.0, 0.0, 0.0, 0.0, 1000.0], [10.0, 0.0, 0.0, 10.0, 1.0], [0.0, 20.0, -7.0, 0.0, 1.0]]
    for _ in range(5000):
        for a in bodies:
            for b in bodies:
                if a is not b:
                    dx, dy = b[0] - a[0], b[1] - a[1]
                    pull = b[4] / (dx * dx + dy * dy + 0.01) ** 1.5
                    a[2] += dx * pull * 0.001
                    a[3] += dy * pull * 0.001
        for a in bodies:
            a[0] += a[2] * 0.001
            a[1] += a[3] * 0.001
    return bodies

"""Run one module of CPython's test suite and report each test in one line.

A report is a line of JSON behind a mark that no test prints: a record
separator and a word that the host chose for this run. What the tests print
themselves goes to the same stream and is ignored by the host.

The same text runs in the sandbox and in the same interpreter outside.
"""

import json
import os
import sys
import tempfile
import traceback
import unittest

REASON_MAX = 300
# A test counts as the worst of what happened to it and to its subtests.
RANKS = ("pass", "skip", "xfail", "xpass", "fail", "error")


def make_report(mark):
    # Tests replace and close sys.stdout; this stream stays.
    stream = sys.__stdout__.buffer
    write, flush, dumps = stream.write, stream.flush, json.dumps
    head = b"\n\x1e" + mark.encode() + b" "

    def report(**fields):
        write(head + dumps(fields).encode() + b"\n")
        flush()

    return report


def shorten(text):
    text = " ".join(text.split())
    if len(text) <= REASON_MAX:
        return text
    # A traceback that is part of a message has the cause at its end.
    return text[: REASON_MAX // 3] + " ... " + text[-(REASON_MAX - REASON_MAX // 3 - 5) :]


def reason_of(err):
    kind, value, _ = err
    try:
        text = str(value)
    except BaseException as e:
        text = "no message: " + type(e).__name__
    return shorten(kind.__name__ + ": " + text)


class Result(unittest.TestResult):
    """Reports each test; TestResult's own lists stay empty."""

    def __init__(self, report, numbers):
        super().__init__()
        self.report, self.numbers = report, numbers
        self.number = self.outcome = self.reason = None

    def startTest(self, test):
        super().startTest(test)
        self.number, name, _ = self.numbers[id(test)]
        self.outcome, self.reason = None, ""
        self.report(start=self.number, id=name)

    def stopTest(self, test):
        super().stopTest(test)
        if self.outcome is not None:  # not stopped in the middle
            self.report(done=self.number, outcome=self.outcome, reason=self.reason)
        self.number = None

    def note(self, test, outcome, reason=""):
        reason = shorten(reason)
        if self.number is None and id(test) in self.numbers:
            # CPython 3.12.1 and later do not start a test that is skipped.
            number, name, _ = self.numbers[id(test)]
            self.report(start=number, id=name)
            self.report(done=number, outcome=outcome, reason=reason)
        elif self.number is None:  # setUpClass and its like
            self.report(fixture=str(test), outcome=outcome, reason=reason)
        elif self.outcome is None or RANKS.index(outcome) > RANKS.index(self.outcome):
            self.outcome, self.reason = outcome, reason

    def addSuccess(self, test):
        self.note(test, "pass")

    def addFailure(self, test, err):
        self.note(test, "fail", reason_of(err))

    def addError(self, test, err):
        self.note(test, "error", reason_of(err))

    def addSkip(self, test, reason):
        self.note(test, "skip", str(reason))

    def addExpectedFailure(self, test, err):
        self.note(test, "xfail", reason_of(err))

    def addUnexpectedSuccess(self, test):
        self.note(test, "xpass")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            outcome = "fail" if issubclass(err[0], test.failureException) else "error"
            self.note(test, outcome, reason_of(err))


def number(suite, first):
    """Number the tests of a suite and drop those before the first one asked for.

    The numbers are the same in every process. Two tests may have one name.
    """
    numbers, seen, count = {}, {}, 0

    def walk(suite):
        nonlocal count
        kept = []
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                walk(test)
                kept.append(test)
                continue
            name = " ".join(test.id().split())
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += " #%d" % seen[name]
            if count >= first:
                # The test itself too: a suite drops it once it has run, and its
                # id may then be another object's.
                numbers[id(test)] = count, name, test
                kept.append(test)
            count += 1
        suite._tests = kept

    walk(suite)
    return numbers, count


def where(e):
    frames = traceback.extract_tb(e.__traceback__)[-3:]
    return " < ".join("%s:%d %s" % (os.path.basename(f.filename), f.lineno, f.name) for f in frames[::-1])


def main(module, mark, first):
    report = make_report(mark)
    os.chdir(tempfile.mkdtemp())
    sys.argv = [module]
    result = None
    try:
        from test import support

        # As CPython's own runner without -u: no network, no display, no hours.
        support.use_resources = {}
        support.verbose = False
        suite = unittest.TestSuite([unittest.defaultTestLoader.loadTestsFromName(module)])
        numbers, count = number(suite, first)
        result = Result(report, numbers)
        suite.run(result)
        report(end=count)
    except unittest.SkipTest as e:  # as the module was loaded
        report(fixture="(module)", outcome="skip", reason=shorten(str(e)))
        report(end=0)
    except BaseException as e:
        report(stopped="%s at %s" % (reason_of((type(e), e, None)), where(e)))
        if isinstance(e, KeyboardInterrupt):
            raise

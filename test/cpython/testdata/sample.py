import os
import sys
import unittest


class A(unittest.TestCase):
    def test_pass(self):
        pass

    def test_fail(self):
        self.assertEqual(1, 2)

    def test_error(self):
        raise OSError("no")

    def test_skip(self):
        self.skipTest("because")

    def test_exit(self):
        os._exit(3)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    def test_prints(self):
        print("\n\x1eword {}")
        os.write(1, b"half a line")
        sys.stdout.write("x" * 100000)

    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)

    def test_subtest_skips(self):
        with self.subTest():
            self.skipTest("because")


@unittest.skip("because")
class Left(unittest.TestCase):
    def test_out(self):
        pass


class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no")

    def test_never(self):
        pass


class Same(unittest.TestCase):
    def test_pass(self):
        pass


def load_tests(loader, tests, pattern):
    tests.addTest(Same("test_pass"))
    return tests

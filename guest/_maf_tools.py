"""Functions of the host: what call_tool and call_tool.ToolError are.

A call "tool" of the host is a 32-bit length (little endian), that many bytes of
the tool's name, and the arguments, a JSON object. The answer is b"+" and the
result in JSON, or b"-" and why there is none.
"""

import builtins
import errno
import json
import struct

from _maf_host import call

# As in _maf_host.
__builtins__ = dict(vars(builtins))

# The host has the same bounds (sandbox/tool.go) and asks nobody here.
MAX_ARGUMENTS = 8 << 20
MAX_DEPTH = 64
MAX_DIGITS = 4300
MAX_NAME = 1024


class ToolError(RuntimeError):
    """A tool of the host gave no result: its name in tool, why in message."""

    def __init__(self, tool, message):
        super().__init__(tool, message)
        self.tool, self.message = tool, message

    def __str__(self):
        return "%s: %s" % (self.tool, self.message)


# Tracebacks name it so that a program can. It is no name of builtins itself:
# what lists the exceptions there, as CPython's own tests do, knows each of them.
ToolError.__module__, ToolError.__qualname__ = "builtins", "call_tool.ToolError"


def make_call_tool():
    # Bound here, where a program that rebinds the names in json does not reach.
    pieces = json.JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
    ).iterencode
    decode = json.JSONDecoder().raw_decode
    pack = struct.Struct("<I").pack
    inf = float("inf")
    digits_limit = 10**MAX_DIGITS
    plain = frozenset((str, bool, type(None)))
    messages = {
        errno.ENOSYS: "this sandbox offers no tools of the host",
        errno.ECANCELED: "the run in which the tool was called is over",
    }

    def check(value, names):
        """Find what JSON cannot carry, before it is changed or refused without words.

        names is where the value is, a tuple of what lies around it.
        """
        kind = type(value)
        if kind in plain or isinstance(value, str):
            return
        if isinstance(value, int):
            if not -digits_limit < value < digits_limit:
                raise ValueError("%s: an int of more than %d digits" % (place(names), MAX_DIGITS))
        elif isinstance(value, float):
            if value != value or value in (inf, -inf):
                raise ValueError("%s: %r is no JSON value" % (place(names), value))
        elif isinstance(value, (list, tuple, dict)):
            if len(names) > MAX_DEPTH - 1:
                raise ValueError("%s: nested deeper than %d" % (place(names[:1]), MAX_DEPTH))
            if isinstance(value, dict):
                for name, item in value.items():
                    if not isinstance(name, str):
                        raise TypeError(
                            "%s: the key %.100r is not text, as JSON wants it" % (place(names), name)
                        )
                    if type(item) not in plain:
                        check(item, names + (name,))
            else:
                for i, item in enumerate(value):
                    if type(item) not in plain:
                        check(item, names + (i,))
        else:
            raise TypeError("%s: %s is no JSON value" % (place(names), kind.__name__))

    def place(names):
        """Where a value is, such as: argument query[2]."""
        first, *rest = names
        return "argument %.100s%s" % (first, "".join("[%.100r]" % (name,) for name in rest[:8]))

    def call_tool(name, /, **arguments):
        """Call a function of the host with named arguments; give what it returns.

        Arguments and results are JSON values: None, bool, int, float, str, list,
        dict. Others are TypeError or ValueError and call nothing. call_tool.ToolError,
        a RuntimeError, when there is no such tool or it failed.
        """
        if not isinstance(name, str):
            raise TypeError("call_tool: the name of a tool is text, not " + type(name).__name__)
        if len(name) > MAX_NAME:
            raise ToolError(name[:100] + "...", "there is no tool of so long a name")
        try:
            for argument, value in arguments.items():
                if type(value) not in plain:
                    check(value, (argument,))
            text = "".join(pieces(arguments, True)).encode()
            title = name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                "call_tool(%.100r): text with a lone surrogate is no JSON value" % (name,)
            ) from None
        except (TypeError, ValueError) as e:
            kind = TypeError if isinstance(e, TypeError) else ValueError
            raise kind("call_tool(%.100r): %s" % (name, e)) from None
        if len(text) > MAX_ARGUMENTS:
            raise ValueError(
                "call_tool(%.100r): the arguments have %d bytes as JSON and may have %d"
                % (name, len(text), MAX_ARGUMENTS)
            )
        try:
            answer = call("tool", b"".join((pack(len(title)), title, text)))
        except OSError as e:
            raise ToolError(name, messages.get(e.errno, e.strerror)) from None
        if answer[:1] != b"+":
            raise ToolError(name, answer[1:].decode("utf-8", "replace"))
        return decode(str(memoryview(answer)[1:], "utf-8"))[0]

    call_tool.__module__ = "builtins"
    call_tool.__qualname__ = "call_tool"
    call_tool.ToolError = ToolError
    return call_tool


call_tool = make_call_tool()

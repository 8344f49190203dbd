"""Calls from the sandbox to its host.

A call is one system call on a reserved descriptor (internal/linux/hostcall.go):

  CALL    preadv([name, request, reply], number) waits for the host's answer and
          gives its length; FAILED is added when it says what went wrong
          write(number) drops the call

The number makes a call one and the same: when a signal handler interrupts preadv
and Python makes it again, the host does not hear it twice. So does a second one
that brings a larger buffer.
"""

import builtins
import errno
import os
import struct
from itertools import count

# A program that patches builtins can still call its host: what is defined below
# looks its names up in a copy, as the driver does.
__builtins__ = dict(vars(builtins))

_CALL = (1 << 20) + 5
_FAILED = 1 << 40
_LENGTH = _FAILED - 1
# A reply that is longer costs a second system call.
_BUFFER_SIZE = 64 << 10
_BUFFERS_KEPT = 4
_buffers = [bytearray(_BUFFER_SIZE)]
_numbers = count(1)

_TEXTS = {
    errno.ENOSYS: "this sandbox does not offer %s",
    errno.ECANCELED: "%s: the run in which the host was called is over",
    errno.ENOBUFS: "%s: the host has no room for the request beside those of others; try again later",
    errno.EMSGSIZE: "%s: the request is larger than a call to the host can carry",
    errno.EINVAL: "%.80s...: the name of a call to the host is too long",
}


def call(name, payload=b""):
    """Have the host answer: give it a name and bytes, wait, return bytes.

    Only the calling thread waits. OSError says what went wrong: errno is ENOSYS
    when the host offers no such thing, ENOBUFS when it did nothing for want of room
    for the request, EREMOTEIO when it failed at it.
    """
    title = bytearray(name, "utf-8")
    payload = memoryview(payload).cast("B")
    size = payload.nbytes
    try:
        reply = _buffers.pop()
    except IndexError:
        reply = bytearray(_BUFFER_SIZE)
    # preadv wants memory that it could write to; the host only reads this.
    if size <= _BUFFER_SIZE:
        request = memoryview(reply)[:size]
        request[:] = payload
    else:
        request = bytearray(payload)
    number = next(_numbers)
    try:
        n = os.preadv(_CALL, [title, request, reply], number)
        size = n & _LENGTH
        kept = reply
        if size > _BUFFER_SIZE:
            kept = bytearray(size)
            n = os.preadv(_CALL, [title, request, kept], number)
    except OSError as e:
        text = _TEXTS.get(e.errno)
        if text is None:
            raise
        raise OSError(e.errno, text % name) from None
    except BaseException:
        os.write(_CALL, struct.pack("<Q", number))
        raise
    answer = memoryview(kept)[:size].tobytes()
    request = None
    if len(_buffers) < _BUFFERS_KEPT:
        _buffers.append(reply)
    if n & _FAILED:
        raise OSError(errno.EREMOTEIO, "%s: %s" % (name, answer.decode("utf-8", "replace")))
    return answer


def http_get(url):
    """Fetch a URL with the host's help, where the host allows that.

    The result is a dictionary: status, an int; body, text; headers, a dictionary. A
    header that came several times is joined by commas, Set-Cookie by line ends.
    Redirects are not followed. OSError when there is no answer.
    """
    import _maf_http

    return _maf_http.fetch("GET", url)


def http_post(url, body="", content_type="application/json"):
    """Send a body, text or bytes, to a URL; otherwise like http_get."""
    import _maf_http

    if isinstance(body, str):
        body = body.encode("utf-8")
    return _maf_http.fetch("POST", url, body, content_type)

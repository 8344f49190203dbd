"""HTTP with the host's help: the sandbox itself has no network.

A call "http" of the host carries a request and brings the answer. Both are a
32-bit length (little endian), that many bytes of JSON, and the body:

  request  {"method", "url", "headers": [[name, value], ...], "unpack",
            "timeout", "connect_timeout", "answer_timeout"}
  answer   {"status", "reason", "headers", "url"}
  or       {"error": {"kind", "message", "connecting"}}

The times are seconds: for all of it, until the request can be sent, after that.
"""

import errno
import io
import json
import struct
import sys

from _maf_host import call

_SIZE = struct.Struct("<I")
# How a body is sent is the host's affair, and how it came.
_FRAMING = ("content-length", "transfer-encoding")


class NobodyListens(PermissionError, ConnectionRefusedError):
    """Nobody listens there inside the sandbox, and outside is not allowed.

    Both are so: programs that wait for a server of their own to come up look for
    the one, those that ask what they may do for the other.
    """


if sys.version_info >= (3, 10):
    TimedOut = TimeoutError
else:
    from _socket import timeout

    class TimedOut(TimeoutError, timeout):
        """What sockets raise was no TimeoutError before Python 3.10."""


class NoConnection(TimedOut):
    """None came about in the program's own time for that."""


def _failure(kind, message, connecting=False):
    """The exception for a kind of error."""
    if kind in ("policy", "address"):
        return PermissionError(errno.EACCES, message)
    if kind == "timeout":
        return (NoConnection if connecting else TimedOut)(errno.ETIMEDOUT, message)
    if kind == "connect":
        return ConnectionError(errno.EHOSTUNREACH, message)
    if kind == "refused":
        return ConnectionRefusedError(errno.ECONNREFUSED, message)
    if kind in ("name", "lookup"):
        import socket

        number = socket.EAI_NONAME if kind == "name" else socket.EAI_AGAIN
        return socket.gaierror(number, message)
    if kind == "tls":
        try:
            from ssl import SSLError
        except ImportError:
            SSLError = OSError
        return SSLError(errno.EPROTO, message)
    numbers = {"too_large": errno.EMSGSIZE, "malformed": errno.EINVAL, "busy": errno.EBUSY, "no_room": errno.ENOBUFS}
    return OSError(numbers.get(kind, errno.EIO), message)


def exchange(method, url, headers, body=b"", unpack=False, **times):
    """Have the host send a request; give its answer's head and body.

    With unpack the body may come compressed and is what was compressed. The times
    are members of the request.
    """
    head = {"method": method, "url": url, "headers": headers, "unpack": unpack, **times}
    head = json.dumps(head).encode()
    try:
        answer = call("http", b"".join((_SIZE.pack(len(head)), head, body)))
    except OSError as e:
        if e.errno != errno.ENOSYS:
            raise
        raise PermissionError(errno.EACCES, "network access is not allowed in this sandbox") from None
    (n,) = _SIZE.unpack_from(answer)
    head = json.loads(answer[_SIZE.size : _SIZE.size + n])
    error = head.get("error")
    if error is not None:
        raise _failure(**error)
    return head, answer[_SIZE.size + n :]


def fetch(method, url, body=b"", content_type=None):
    """What http_get and http_post do."""
    if not isinstance(url, str):
        raise TypeError("a URL is text, not " + type(url).__name__)
    try:
        body = memoryview(body)
    except TypeError:
        raise TypeError("body is text or bytes, not " + type(body).__name__) from None
    if not isinstance(content_type, (str, type(None))):
        raise TypeError("content_type is text, not " + type(content_type).__name__)
    headers = [] if content_type is None else [["Content-Type", content_type]]
    head, content = exchange(method, url, headers, body, unpack=True)
    got = {}
    for name, value in head["headers"]:
        if name in got:
            # A cookie may hold a comma itself (RFC 9110, section 5.3), and no line end.
            value = got[name] + ("\n" if name == "Set-Cookie" else ", ") + value
        got[name] = value
    return {"status": head["status"], "body": content.decode("utf-8", "replace"), "headers": got}


class Line:
    """What http.client takes for a socket to another machine.

    It collects a request until it is complete and then has the host answer it. With
    no_connection, which makes the exception for a connection that takes too long, it
    waits until the answer is wanted: the timeout is that of the connection then, and
    what is set later that of the answer.
    """

    def __init__(self, address, timeout, refused, no_connection=None):
        self._host, self._port = address[:2]
        self._timeout, self._refused = timeout, refused
        self._connect_timeout, self._no_connection = timeout, no_connection
        self._scheme = "http"
        self._begin()

    def _begin(self):
        self._data, self._head, self._body = bytearray(), None, bytearray()
        self._left = 0  # of the body; None: it comes in chunks
        self._complete = False
        self._answer = None

    def encrypted(self):
        """The same with TLS, which is the host's."""
        self._scheme = "https"
        return self

    def settimeout(self, timeout):
        self._timeout = timeout

    def gettimeout(self):
        return self._timeout

    def setsockopt(self, *args):
        pass

    def getpeername(self):
        return self._host, self._port

    def close(self):
        pass

    shutdown = setsockopt

    def makefile(self, mode="rb", *args, **kwds):
        if self._complete:
            self._exchange()
        if self._answer is None:
            raise ConnectionError(errno.ENOTCONN, "the request is not complete")
        answer, self._answer = self._answer, None
        return answer

    def sendall(self, data, flags=0):
        self._data += data
        if self._head is None and not self._read_head():
            return
        self._complete = self._read_body()
        if self._complete and self._no_connection is None:
            self._exchange()

    def send(self, data, flags=0):
        self.sendall(data)
        return len(data)

    def _read_head(self):
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        method, target, _ = first.split(" ", 2)
        if method == "CONNECT" or not target.startswith("/"):
            raise OSError(errno.ENOSYS, "this sandbox does not offer proxies")
        headers = []
        for line in lines:
            if headers and line[:1] in ("\t", " "):
                # The rest of a value: putheader writes several so.
                headers[-1][1] += " " + line.strip()
                continue
            name, _, value = line.partition(":")
            name, value, key = name.strip(), value.strip(), name.strip().lower()
            if key not in _FRAMING:
                headers.append([name, value])
            elif self._left is not None:
                self._left = int(value) if key == "content-length" else None
        self._head = method, "%s://%s%s" % (self._scheme, self._netloc(), target), headers
        return True

    def _netloc(self):
        host = self._host.strip("[]").lower()
        if ":" in host:
            host = "[" + host + "]"
        if self._port != {"http": 80, "https": 443}[self._scheme]:
            host = "%s:%d" % (host, self._port)
        return host

    def _read_body(self):
        """Take in what has come; report whether that was all."""
        data = self._data
        if self._left is not None:
            piece = data[: self._left]
            self._body += piece
            self._left -= len(piece)
            del data[: len(piece)]
            return not self._left
        while True:
            end = data.find(b"\r\n")
            if end < 0:
                return False
            size = int(data[:end].split(b";")[0], 16)
            if len(data) < end + 2 + size + 2:
                return False
            self._body += data[end + 2 : end + 2 + size]
            del data[: end + 2 + size + 2]
            if not size:
                return True

    def _times(self):
        whole, connect, answer = self._timeout or None, None, None
        if self._no_connection is not None:
            connect, answer = self._connect_timeout or None, whole
            whole = connect and answer and connect + answer
        return {"timeout": whole, "connect_timeout": connect, "answer_timeout": answer}

    def _exchange(self):
        (method, url, headers), body = self._head, self._body
        self._begin()
        try:
            head, content = exchange(method, url, headers, body, **self._times())
        except PermissionError as e:
            if self._refused:
                text = "nothing listens there inside the sandbox, and for outside: " + e.strerror
                raise NobodyListens(errno.EACCES, text) from None
            raise
        except NoConnection as e:
            raise self._no_connection(e.strerror) from None
        except TimeoutError as e:
            # A server that says nothing lets a request be sent all the same.
            self._answer = io.BufferedReader(_Silence(e))
            return
        lines = ["HTTP/1.1 %d %s" % (head["status"], head.get("reason") or "")]
        for name, value in head["headers"]:
            # The answer to HEAD tells the length of a body that it does not have.
            if name.lower() not in _FRAMING or method == "HEAD" and name.lower() == "content-length":
                lines.append(name + ": " + value)
        if method != "HEAD":
            lines.append("Content-Length: %d" % len(content))
        lines += "Connection: close", "", ""
        text = "\r\n".join(lines).encode("latin-1", "replace")
        self._answer = io.BufferedReader(io.BytesIO(text + content))


class _Silence(io.RawIOBase):
    """An answer that did not come in time."""

    def __init__(self, error):
        self._error = error

    def readable(self):
        return True

    def readinto(self, buffer):
        raise self._error


_LOOPBACK = ("localhost", "::1", "[::1]")


def connect(local, address, timeout=None, source_address=None, *, no_connection=None, **kwds):
    """What http.client calls instead of socket.create_connection.

    A server inside the sandbox comes first; there is no other way to it. A caller that
    has a time for the connection and sets another for the answer gives no_connection.
    """
    refused = False
    host = address[0]
    if host in _LOOPBACK or host.startswith("127."):
        try:
            return local(address, timeout, source_address, **kwds)
        except ConnectionRefusedError:
            refused = True
    if timeout is not None and not isinstance(timeout, (int, float)):
        import socket

        timeout = socket.getdefaulttimeout()
    return Line(address, timeout, refused, no_connection)

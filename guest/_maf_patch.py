"""Changes of HTTP libraries, made when they are imported (refusals.py).

Their connections get _maf_http's stand-in for a socket. Everything else of them,
and the module socket, stays what it is.
"""

import errno
from functools import wraps


def http_client(m):
    """Have the host carry what a connection to another machine sends."""
    init = m.HTTPConnection.__init__
    connect = m.socket.create_connection

    def create_connection(*args, **kwds):
        import _maf_http

        return _maf_http.connect(connect, *args, **kwds)

    @wraps(init)
    def __init__(self, *args, **kwds):
        init(self, *args, **kwds)
        # Unless a test of the program's put another one there.
        if self._create_connection is connect:
            self._create_connection = create_connection

    m.HTTPConnection.__init__ = __init__
    if not hasattr(m, "HTTPSConnection"):
        return
    connect_tls = m.HTTPSConnection.connect

    @wraps(connect_tls)
    def connect_encrypted(self):
        # The host does TLS: what is sent to it must not be wrapped.
        context, self._context = self._context, _Unwrapped(self._context)
        try:
            connect_tls(self)
        finally:
            self._context = context

    m.HTTPSConnection.connect = connect_encrypted


class _Unwrapped:
    """An SSL context that leaves alone what the host is to encrypt."""

    def __init__(self, context):
        self._context = context

    def __getattr__(self, name):
        return getattr(self._context, name)

    def wrap_socket(self, sock, *args, **kwds):
        encrypted = getattr(sock, "encrypted", None)
        if encrypted is None:
            return self._context.wrap_socket(sock, *args, **kwds)
        return encrypted()


def urllib3(m):
    """The same for urllib3, and so for requests."""
    connect = m.connection.create_connection

    @wraps(connect)
    def create_connection(*args, **kwds):
        import _maf_http

        return _maf_http.connect(connect, *args, no_connection=m.ConnectTimeoutError, **kwds)

    m.connection.create_connection = create_connection
    connect_tls = m.HTTPSConnection.connect

    @wraps(connect_tls)
    def connect_encrypted(self):
        sock = self._new_conn()
        encrypted = getattr(sock, "encrypted", None)
        if encrypted is not None:
            if self._tunnel_host:
                raise OSError(errno.ENOSYS, "this sandbox does not offer proxies")
            if self.cert_file:
                # Without it the server would take the program for somebody else.
                raise OSError(errno.ENOSYS, "this sandbox does not offer client certificates")
            self.sock, self.is_verified = encrypted(), True
            return
        self._new_conn = lambda: sock
        try:
            connect_tls(self)
        finally:
            del self._new_conn

    m.HTTPSConnection.connect = connect_encrypted

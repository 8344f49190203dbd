"""Say in words what the sandbox does not offer.

The system calls behind these functions are refused by the guest's kernel
anyway; what is here only turns a bare errno into a sentence. It guards nothing.
"""

import errno
import os
import sys
from importlib.machinery import PathFinder

# Modules of ours that are imported when they are first needed, and where.
_OWN = ("_maf_host", "_maf_http", "_maf_patch", "_maf_tools")
_HERE = [os.path.dirname(os.path.abspath(__file__))]


def _refuse(what):
    def refused(*args, **kwds):
        raise OSError(errno.ENOSYS, "this sandbox does not offer " + what)

    return refused


def _patch_os():
    processes = _refuse("other processes")
    posix = sys.modules["posix"]
    for name in (
        "fork fork1 forkpty posix_spawn posix_spawnp execv execve system "
        "spawnv spawnve spawnvp spawnvpe popen execl execle execlp execlpe execvp execvpe"
    ).split():
        for module in (os, posix):
            if hasattr(module, name):
                setattr(module, name, processes)


def _patch_socket(m):
    """Sockets inside the sandbox work; what would leave it is refused.

    There is no resolver, so the one name that there is, localhost, is known here.
    """
    refused = _refuse("network sockets")
    unknown = _refuse("name resolution")
    loopback = {m.AF_INET: "127.0.0.1", m.AF_INET6: "::1"}

    own_names = ("localhost", b"localhost", m.gethostname())

    def numeric(family, host):
        if host in own_names:
            return loopback.get(family, "127.0.0.1")
        return host

    def explain(method, addressed):
        def explained(self, *args, **kwds):
            if addressed and args and isinstance(args[0], tuple) and self.family in loopback:
                address, *rest = args
                args = ((numeric(self.family, address[0]), *address[1:]), *rest)
            try:
                return method(self, *args, **kwds)
            except PermissionError as e:
                if e.errno != errno.EPERM:
                    raise
                refused()
            except m.gaierror:
                unknown()

        return explained

    m.socket.__init__ = explain(m.socket.__init__, False)
    for name in "bind connect connect_ex".split():
        setattr(m.socket, name, explain(getattr(m.socket, name), True))

    base_getaddrinfo = m.getaddrinfo
    base_getnameinfo = m.getnameinfo
    base_gethostbyname = m.gethostbyname

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        try:
            return base_getaddrinfo(numeric(family, host), port, family, type, proto, flags | m.AI_NUMERICHOST)
        except m.gaierror:
            unknown()

    def getnameinfo(sockaddr, flags):
        return base_getnameinfo(sockaddr, flags | m.NI_NUMERICHOST | m.NI_NUMERICSERV)

    def gethostbyname(hostname):
        try:
            return base_gethostbyname(numeric(m.AF_INET, hostname))
        except m.gaierror:
            unknown()

    def getfqdn(name=""):
        name = name.strip()
        return m.gethostname() if name in ("", "0.0.0.0", "::") else name

    for f in (getaddrinfo, getnameinfo, gethostbyname, getfqdn):
        setattr(m, f.__name__, f)
    for name in "gethostbyname_ex gethostbyaddr".split():
        setattr(m, name, unknown)


def _patch_subprocess(m):
    m._fork_exec = _refuse("other processes")
    if hasattr(m, "_posixsubprocess"):
        m._posixsubprocess.fork_exec = m._fork_exec
    m._USE_POSIX_SPAWN = False

    def execute(self, *args, **kwds):
        m._fork_exec()

    m.Popen._execute_child = execute


def _patch_multiprocessing(m):
    refused = _refuse("other processes")

    def start(self):
        refused()

    m.BaseProcess.start = start


def _later(function):
    """A patch of _maf_patch, which is imported when it is needed."""

    def patch(m):
        import _maf_patch

        getattr(_maf_patch, function)(m)

    return patch


_PATCHES = {
    "http.client": _later("http_client"),
    "socket": _patch_socket,
    "urllib3.connection": _later("urllib3"),
    "subprocess": _patch_subprocess,
    "multiprocessing.process": _patch_multiprocessing,
}


class _Loader:
    """A module's own loader, and a patch when it has run."""

    def __init__(self, loader, patch):
        self._loader, self._patch = loader, patch

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._loader
        self._patch(module)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _OWN:
            return PathFinder.find_spec(name, _HERE, target)
        patch = _PATCHES.get(name)
        if patch is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, patch)
        return spec


def install():
    _patch_os()
    sys.meta_path.insert(0, _Finder)

"""Say in words what the sandbox does not offer.

The system calls behind these functions are refused by the guest's kernel
anyway; what is here only turns a bare errno into a sentence. It guards nothing.
"""

import errno
import os
import sys
from importlib.machinery import PathFinder


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
    refused = _refuse("network sockets")
    base_init = m.socket.__init__

    def init(self, family=-1, type=-1, proto=-1, fileno=None):
        if fileno is None:
            refused()
        base_init(self, family, type, proto, fileno)

    m.socket.__init__ = init
    names = _refuse("name resolution")
    for name in "getaddrinfo gethostbyname gethostbyname_ex gethostbyaddr getnameinfo getfqdn".split():
        setattr(m, name, names)


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


_PATCHES = {
    "socket": _patch_socket,
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

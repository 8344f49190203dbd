# Asks an interpreter about itself; run with -I -S. The syntax is understood by
# every Python that could answer, so that old ones can be refused by name.
import json
import os
import sys
import sysconfig

venv = home = ""
exe = sys.executable or ""
for folder in (os.path.dirname(exe), os.path.dirname(os.path.dirname(exe))):
    config = os.path.join(folder, "pyvenv.cfg")
    if exe and os.path.isfile(config):
        venv = folder
        with open(config) as lines:
            for line in lines:
                key, _, value = line.partition("=")
                if key.strip().lower() == "home":
                    home = value.strip()
        break

base = getattr(sys, "base_prefix", sys.prefix)
packages = venv or base


def site(name):
    where = {"base": packages, "platbase": packages}
    return sysconfig.get_path(name, "posix_prefix", where)


try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (AttributeError, ValueError, OSError):
    libc = ""

version = sys.version_info
print(json.dumps({
    "executable": exe,
    "base_prefix": base,
    "implementation": sys.implementation.name,
    "version": sys.version.split()[0].rstrip("+"),
    "major": version[0],
    "minor": version[1],
    "tag": sys.implementation.cache_tag or "",
    "abi_flags": getattr(sys, "abiflags", ""),
    "bits": 64 if sys.maxsize > 2 ** 32 else 32,
    "libc": libc,
    "stdlib": os.path.dirname(os.__file__),
    "dynload": sysconfig.get_path("platstdlib"),
    "venv": venv,
    "venv_home": home,
    "site": [site("purelib"), site("platlib")],
    "sources": [p for p in map(sysconfig.get_config_var, ("abs_srcdir", "abs_builddir")) if p],
}))

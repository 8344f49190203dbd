//go:build linux && amd64

package engine_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
)

// interpreters finds the Pythons of this machine: the distribution's and those
// of pyenv, one for each minor version that the image package takes.
func interpreters(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		found["distribution"] = "/usr/bin/python3"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range []string{"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		paths, err := filepath.Glob(filepath.Join(home, ".pyenv/versions", minor+".*", "bin/python3"))
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) > 0 {
			found["pyenv "+minor] = paths[len(paths)-1]
		}
	}
	if len(found) == 0 {
		t.Skip("needs a Python at /usr/bin/python3 or under pyenv")
	}
	return found
}

// standardLibrary imports every module there is and uses those that programs
// use most.
const standardLibrary = `
import sys, warnings
warnings.simplefilter('ignore')
left_out = set('''antigravity this idlelib turtledemo tkinter turtle lib2to3 ensurepip test pydoc_data
  curses readline nis msilib msvcrt nt winreg winsound _ios_support'''.split())
host_only = ('_test', '_xx', 'xx', '_curses', '_dbm', '_gdbm', '_msi', '_overlapped', '_scproxy', '_tkinter', '_winapi', '_wmi')
bad = []
for name in sorted(getattr(sys, 'stdlib_module_names', ())):
    if name in left_out or name.startswith(host_only):
        continue
    try:
        __import__(name)
    except BaseException as e:
        bad.append((name, repr(e)))
assert not bad, bad

import array, base64, bz2, collections, csv, ctypes, dataclasses, datetime, decimal, fractions, glob, gzip, hashlib, heapq
import hmac, io, itertools, json, logging, lzma, math, os, pathlib, pickle, random, re, shutil, sqlite3, statistics, string
import struct, tempfile, textwrap, unicodedata, unittest, uuid, xml.etree.ElementTree, zipfile, zlib, zoneinfo
assert json.loads(json.dumps({'a': [1, 2.5, None]})) == {'a': [1, 2.5, None]}
assert decimal.Decimal('0.1') + decimal.Decimal('0.2') == decimal.Decimal('0.3')
assert hashlib.sha256(b'x').hexdigest().startswith('2d711642')
for m in (zlib, gzip, bz2, lzma):
    assert m.decompress(m.compress(b'abc' * 100)) == b'abc' * 100
assert pickle.loads(pickle.dumps(datetime.date(2026, 1, 2))) == datetime.date(2026, 1, 2)
assert ctypes.CDLL(None).abs(-5) == 5
d = tempfile.mkdtemp()
db = sqlite3.connect(os.path.join(d, 'x.db'))
db.execute('create table t (a, b)')
db.executemany('insert into t values (?, ?)', [(i, str(i)) for i in range(1000)])
db.commit()
assert db.execute('select count(*), sum(a) from t').fetchone() == (1000, 499500)
db.close()
p = pathlib.Path(d)
(p / 'sub').mkdir()
(p / 'sub' / 'f.txt').write_text('hello')
(p / 'link').symlink_to('sub/f.txt')
assert (p / 'link').read_text() == 'hello'
with zipfile.ZipFile(p / 'z.zip', 'w') as z:
    z.write(p / 'sub' / 'f.txt', 'f.txt')
assert zipfile.ZipFile(p / 'z.zip').read('f.txt') == b'hello'
assert sorted(x for _, _, fs in os.walk(d) for x in fs) == ['f.txt', 'link', 'x.db', 'z.zip']
shutil.copytree(d, d + '2')
shutil.rmtree(d)
assert not os.path.exists(d)
with tempfile.NamedTemporaryFile('w+') as f:
    f.write('x'); f.seek(0)
    assert f.read() == 'x'
class T(unittest.TestCase):
    def test(self): self.assertEqual(1, 1)
assert unittest.TextTestRunner(stream=io.StringIO()).run(T('test')).wasSuccessful()
assert zoneinfo.ZoneInfo('Europe/Brussels').utcoffset(datetime.datetime(2026, 7, 1)) == datetime.timedelta(hours=2)
import time, select
a = time.monotonic(); time.sleep(0.001); select.select([], [], [], 0.001); assert time.monotonic() - a >= 0.002
assert sys.prefix == '/usr' and sys.executable.startswith('/usr/bin/python3')
print('ok')
`

// timedOut catches what sockets raise, which was no TimeoutError before Python 3.10.
const timedOut = `
import socket
from urllib.request import urlopen
for kind in socket.timeout, TimeoutError:
    try: urlopen('http://timeout.error/')
    except kind as e: print(e.strerror)
try: http_get('http://timeout.error/')
except socket.timeout as e: print(e.strerror)`

func TestEveryPythonRunsItsStandardLibrary(t *testing.T) {
	for name, python := range interpreters(t) {
		t.Run(name, func(t *testing.T) {
			tm := template(t, func(c *engine.Config) { c.Image = imageOf(t, image.Options{Python: python}) })
			vm := machine(t, tm)
			for range 2 {
				output(t, vm, "print(6*7)", "42\n")
				res := run(t, vm, "def f():\n    raise ValueError('é')\nf()")
				for _, want := range []string{`File "<sandbox>", line 3, in <module>`, `line 2, in f`, "raise ValueError('é')", "ValueError: é"} {
					if !strings.Contains(string(res.Stderr), want) {
						t.Errorf("traceback lacks %q:\n%s", want, res.Stderr)
					}
				}
				output(t, vm, standardLibrary, "ok\n")
				outputWith(t, vm, timedOut, strings.Repeat("no timeout\n", 3), web)
				reset(t, vm)
			}
		})
	}
}

// TestNothingOfTheHostShowsInside looks for the user's home, the host's name
// and its environment in what a program can find out.
func TestNothingOfTheHostShowsInside(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAF_SECRET_OF_THE_HOST", "secret-value")
	vm := machine(t, template(t, nil))
	res := run(t, vm, `
import os, sys, platform, sysconfig, pwd, site, locale, getpass, json
out = [dict(os.environ), sys.path, sys.prefix, platform.uname(), sysconfig.get_config_vars(), sysconfig.get_paths(), os.getcwd()]
print('etc holds', sorted(os.listdir('/etc')), pwd.getpwuid(os.getuid()), getpass.getuser(), os.path.expanduser('~sandbox'))
for root in ('/home', '/root', '/proc', '/sys', '/var', '/bin'):
    out.append((root, os.path.exists(root)))
out.append([(d, ds, fs) for d, ds, fs in os.walk('/') if not d.startswith('/usr/share/zoneinfo')])
print(out)`)
	if res.ExitCode != 0 {
		t.Fatal(string(res.Stderr))
	}
	text := string(res.Stdout)
	for _, secret := range []string{home + "/", host + "'", "secret-value", "MAF_SECRET", ".pyenv"} {
		if strings.Contains(text, secret) {
			i := strings.Index(text, secret)
			t.Errorf("%q shows inside: ...%.200s", secret, text[max(0, i-100):])
		}
	}
	if !strings.Contains(text, "etc holds ['group', 'passwd'] pwd.struct_passwd(pw_name='sandbox',") || !strings.Contains(text, " sandbox /work\n") {
		t.Errorf("the guest's user is not as it should be: %.300s", text)
	}
	for _, root := range []string{"/home", "/root", "/proc", "/sys", "/var"} {
		if !strings.Contains(text, "('"+root+"', False)") {
			t.Errorf("%s exists inside", root)
		}
	}
}

func TestAVenvWithNumpyComputes(t *testing.T) {
	if testing.Short() {
		t.Skip("installs numpy: left out with -short")
	}
	for name, python := range interpreters(t) {
		if name != "distribution" && name != "pyenv 3.13" {
			continue // the oldest and the newest kind of build stand for the rest
		}
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "venv")
			for _, args := range [][]string{
				{python, "-m", "venv", dir},
				{filepath.Join(dir, "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"},
			} {
				if out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Skipf("needs venv and pip with numpy: %v: %.300s", err, out)
				}
			}
			tm := template(t, func(c *engine.Config) { c.Image = imageOf(t, image.Options{Venv: dir}) })
			vm := machine(t, tm)
			for range 2 {
				output(t, vm, "import numpy as np; print(np.arange(10).sum(), (np.ones((200, 200)) @ np.ones((200, 200)))[0, 0])", "45 200.0\n")
				// X86_V3 is what LZCNT decides: without it sorting is 11 times slower.
				res := run(t, vm, "import numpy as np; np.show_config()\nfrom numpy._core._multiarray_umath import __cpu_features__ as f\nprint(f['AVX2'], f.get('LZCNT', f.get('X86_V3')))")
				native, err := exec.CommandContext(context.Background(), filepath.Join(dir, "bin/python"), "-c",
					"from numpy._core._multiarray_umath import __cpu_features__ as f\nprint(f['AVX2'], f.get('LZCNT', f.get('X86_V3')))").Output()
				if err != nil || !strings.HasSuffix(string(res.Stdout), string(native)) {
					t.Errorf("CPU features %.300q, native %q (%v)", res.Stdout, native, err)
				}
				reset(t, vm)
			}
		})
	}
}

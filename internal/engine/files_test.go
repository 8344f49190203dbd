//go:build linux && amd64

package engine_test

import "testing"

func TestFilesWorkAsProgramsExpect(t *testing.T) {
	tm := template(t, nil)
	for name, c := range map[string]struct{ code, want string }{
		"temporary files and folders": {`
import os, tempfile
with tempfile.TemporaryDirectory() as d:
    p = os.path.join(d, 'a.txt')
    open(p, 'w').write('hello')
    with tempfile.NamedTemporaryFile('w+', dir=d, suffix='.log') as f:
        f.write('x' * 10); f.flush()
        print(sorted(len(n) > 4 for n in os.listdir(d)), os.stat(f.name).st_size)
    with tempfile.SpooledTemporaryFile(4) as f:
        f.write(b'12345678'); f.seek(2); print(f.read())
    fd, q = tempfile.mkstemp(dir=d); os.close(fd); print(oct(os.stat(q).st_mode))
print(os.path.exists(d))`, "[True, True] 10\nb'345678'\n0o100600\nFalse\n"},
		"pathlib": {`
from pathlib import Path
d = Path('/tmp/p'); (d / 'x' / 'y').mkdir(parents=True)
(d / 'x' / 'a.txt').write_text('ä'); (d / 'x' / 'y' / 'b.bin').write_bytes(bytes(3))
(d / 'link').symlink_to('x'); (d / 'hard').hardlink_to(d / 'x' / 'a.txt')
print(sorted(str(p.relative_to(d)) for p in d.rglob('*')))
print((d / 'link' / 'a.txt').read_text(), (d / 'link').resolve(), (d / 'hard').stat().st_nlink, (d / 'link').is_symlink())
(d / 'hard').rename(d / 'moved'); (d / 'moved').chmod(0o400); print(oct((d / 'moved').stat().st_mode)[-3:], (d / 'moved').owner() if False else '')
(d / 'none').touch(); (d / 'none').unlink(); print((d / 'none').exists(), d.joinpath('x', 'a.txt').samefile(d / 'moved'))`,
			"['hard', 'link', 'x', 'x/a.txt', 'x/y', 'x/y/b.bin']\nä /tmp/p/x 2 True\n400 \nFalse True\n"},
		"shutil and walking": {`
import os, shutil
os.makedirs('/tmp/s/a/b'); open('/tmp/s/a/f', 'w').write('1' * 5000); os.symlink('f', '/tmp/s/a/l')
shutil.copytree('/tmp/s/a', '/tmp/s/c', symlinks=True); shutil.move('/tmp/s/c', '/tmp/s/d'); shutil.copy2('/tmp/s/a/f', '/tmp/s/g')
print([(r, sorted(d), sorted(f)) for r, d, f in sorted(os.walk('/tmp/s'))])
print(os.readlink('/tmp/s/d/l'), os.path.getsize('/tmp/s/g'), shutil.disk_usage('/tmp').total > 1e6)
print(os.path.basename(shutil.make_archive('/tmp/s/z', 'gztar', '/tmp/s/a'))); shutil.unpack_archive('/tmp/s/z.tar.gz', '/tmp/s/u')
print(sorted(os.listdir('/tmp/s/u'))); shutil.rmtree('/tmp/s'); print(os.path.exists('/tmp/s'))`,
			"[('/tmp/s', ['a', 'd'], ['g']), ('/tmp/s/a', ['b'], ['f', 'l']), ('/tmp/s/a/b', [], []), ('/tmp/s/d', ['b'], ['f', 'l']), ('/tmp/s/d/b', [], [])]\n" +
				"f 5000 True\nz.tar.gz\n['b', 'f', 'l']\nFalse\n"},
		"archives and compression": {`
import zipfile, gzip, bz2, lzma, io
with zipfile.ZipFile('/tmp/z.zip', 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('a/b.txt', 'abc' * 1000); z.mkdir('e') if hasattr(z, 'mkdir') else z.writestr('e/', '')
with zipfile.ZipFile('/tmp/z.zip') as z: print(z.testzip(), z.namelist(), len(z.read('a/b.txt')))
for m in gzip, bz2, lzma:
    with m.open('/tmp/f', 'wt') as f: f.write('line\n' * 100)
    with m.open('/tmp/f', 'rt') as f: print(sum(1 for _ in f))`, "None ['a/b.txt', 'e/'] 3000\n100\n100\n100\n"},
		"sqlite3 in a file": {`
import sqlite3, os
for mode in 'delete', 'wal', 'truncate':
    try: os.remove('/tmp/t.db')
    except FileNotFoundError: pass
    c = sqlite3.connect('/tmp/t.db'); got = c.execute('pragma journal_mode=' + mode).fetchone()[0]
    c.execute('create table t(x integer primary key, y text)')
    with c: c.executemany('insert into t(y) values(?)', [(str(i),) for i in range(1000)])
    try:
        with c: c.execute('delete from t'); 1 / 0
    except ZeroDivisionError: pass
    c.close(); c = sqlite3.connect('/tmp/t.db')
    print(got, c.execute('select count(*), sum(x) from t').fetchone(), c.execute('pragma integrity_check').fetchone()[0]); c.close()`,
			"delete (1000, 500500) ok\nwal (1000, 500500) ok\ntruncate (1000, 500500) ok\n"},
		"seeking, truncating, appending, mapping": {`
import mmap, os
with open('/tmp/m', 'w+b') as f:
    f.truncate(10000); f.seek(9990); f.write(b'end'); f.flush()
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print(m[9990:9993], len(m)); m.close()
    m = mmap.mmap(f.fileno(), 0); m[5:8] = b'map'; f.seek(4); print(f.read(5)); m.resize(20000); m[19999] = 33; m.close()
    print(os.stat('/tmp/m').st_size, open('/tmp/m', 'rb').read()[-1:]); f.truncate(10000)
with open('/tmp/m', 'ab') as f: f.write(b'!'); print(f.tell())
fd = os.open('/tmp/m', os.O_RDWR); os.pwrite(fd, b'xy', 1); print(os.pread(fd, 4, 0), os.lseek(fd, 0, os.SEEK_END)); os.ftruncate(fd, 2); os.close(fd)
print(open('/tmp/m', 'rb').read(), os.path.getsize('/tmp/m'))`, "b'end' 10000\nb'\\x00map\\x00'\n20000 b'!'\n10001\nb'\\x00xy\\x00' 10001\nb'\\x00x' 2\n"},
		"shelves, pickles, csv and fileinput": {`
import csv, pickle, shelve, dbm.dumb, os
with open('/tmp/c.csv', 'w', newline='') as f: csv.writer(f).writerows([['a', 'b,c'], [1, 'x"y']])
print(list(csv.reader(open('/tmp/c.csv', newline=''))))
pickle.dump({'k': range(3)}, open('/tmp/p', 'wb')); print(pickle.load(open('/tmp/p', 'rb')))
with shelve.Shelf(dbm.dumb.open('/tmp/sh', 'c')) as s: s['k'] = [1, 2]
with shelve.Shelf(dbm.dumb.open('/tmp/sh')) as s: print(s['k'])`, "[['a', 'b,c'], ['1', 'x\"y']]\n{'k': range(0, 3)}\n[1, 2]\n"},
		"the image is read-only": {`
import os, json
try: open(json.__file__, 'a')
except OSError as e: print(type(e).__name__)
try: os.remove(json.__file__)
except OSError as e: print(type(e).__name__)
print(os.access(json.__file__, os.R_OK), os.access(json.__file__, os.W_OK))`, "OSError\nOSError\nTrue False\n"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tm)
			output(t, vm, c.code, c.want)
			reset(t, vm)
			output(t, vm, c.code, c.want)
		})
	}
}

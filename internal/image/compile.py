# Compiles source text to byte code: reads (name, source) pairs on stdin and
# writes one answer each on stdout, empty when the text does not compile. The
# byte code is never checked against its source: an image does not change.
import sys

sys.path[:] = [p for p in sys.path if p]

import gc
import marshal
import struct
from importlib.util import MAGIC_NUMBER, source_hash

UNCHECKED_HASH = 1

gc.disable()
sys.setrecursionlimit(5000)
requests, answers = sys.stdin.buffer, sys.stdout.buffer
head = MAGIC_NUMBER + struct.pack("<I", UNCHECKED_HASH)
while True:
    sizes = requests.read(8)
    if len(sizes) < 8:
        break
    name, source = map(requests.read, struct.unpack("<II", sizes))
    try:
        code = compile(source, name.decode(), "exec", dont_inherit=True, optimize=0)
        answer = head + source_hash(source) + marshal.dumps(code)
    except Exception:
        answer = b""
    answers.write(struct.pack("<I", len(answer)))
    answers.write(answer)
answers.flush()

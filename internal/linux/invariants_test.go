package linux

import (
	"bytes"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// checkInvariants sees to it that the process has kept its own rules.
func (g *guest) checkInvariants(t *testing.T) {
	t.Helper()
	if !sortedRanges(g.p.mem.free, g.l.Heap.Lo, g.p.mem.end) {
		t.Fatalf("free ranges %#x are not sorted, apart and inside the heap", g.p.mem.free)
	}
	m := &g.p.mem
	if m.fresh < m.end && (len(m.free) == 0 || m.free[len(m.free)-1].Hi != m.end || m.free[len(m.free)-1].Lo > m.fresh) {
		t.Fatalf("what is beyond %#x is not one free range: %#x", m.fresh, m.free)
	}
	if m.brk < g.l.Brk.Lo || m.brk > m.brkFresh || m.brkFresh > g.l.Brk.Hi {
		t.Fatalf("break %#x, fresh from %#x", m.brk, m.brkFresh)
	}
	used, listed, refs := 0, 0, map[*description]int{}
	for _, d := range g.p.fds.table {
		if d.file != nil {
			used++
			refs[d.file]++
		}
	}
	for _, th := range g.p.threads {
		for _, f := range []*description{th.wait.file, th.wait.source} {
			if th.waiting && f != nil {
				refs[f]++
			}
		}
	}
	for d, n := range refs {
		listed += len(d.entries)
		if d.refs != n || d.pos < 0 {
			t.Fatalf("a file with %d descriptors has %d references, position %d", n, d.refs, d.pos)
		}
	}
	if used != g.p.fds.used || len(g.p.fds.table) > maxDescriptors || listed != g.p.fds.listed || listed > maxListed {
		t.Fatalf("%d descriptors counted as %d, %d entries counted as %d", used, g.p.fds.used, listed, g.p.fds.listed)
	}
	work, e := g.p.fs.Resolve(g.p.fs.Root(), "/work", true)
	if e != 0 {
		t.Fatal(e)
	}
	if u := g.p.fs.Statfs(work); u.Free > u.Blocks || u.FilesFree > u.Files {
		t.Fatalf("files use %+v", u)
	}
	if g.p.frames > maxAllFrames || cap(g.p.scratch) > maxBuffer || len(g.p.mailbox.value) > g.p.mailbox.maxValue {
		t.Fatal("the host holds more than it should")
	}
	frames := 0
	for _, th := range g.p.threads {
		if frames += len(th.frames); th.mask&unblockable != 0 {
			t.Fatalf("thread %d has mask %#x", th.id, th.mask)
		}
	}
	if frames != g.p.frames || len(g.p.threads) > maxThreads || len(g.p.threads) == 0 {
		t.Fatalf("%d threads with %d frames, counted as %d", len(g.p.threads), frames, g.p.frames)
	}
	for _, th := range g.p.threads {
		if !th.waiting && (th.wait.try != nil || th.wait.file != nil || th.wait.source != nil) || th.exited {
			t.Fatalf("thread %d has something left of a wait, or has exited", th.id)
		}
	}
	g.checkShared(t)
	g.checkChannels(t)
	g.checkText(t)
}

// checkShared sees to it that shared mappings are apart, and in memory that is
// handed out.
func (g *guest) checkShared(t *testing.T) {
	t.Helper()
	shared := g.p.mem.shared
	if len(shared) > maxShared {
		t.Fatalf("%d shared mappings", len(shared))
	}
	for i, m := range shared {
		if m.lo >= m.hi || !g.p.inHeap(m.lo, m.hi) || g.p.touchesFree(m.lo, m.hi) {
			t.Fatalf("a shared mapping [%#x,%#x) of free memory or none: %#x", m.lo, m.hi, g.p.mem.free)
		}
		for _, o := range shared[:i] {
			if o.lo < m.hi && m.lo < o.hi {
				t.Fatalf("shared mappings overlap at %#x and %#x", o.lo, m.lo)
			}
		}
	}
}

// checkChannels sees to it that what pipes, sockets and epolls hold is counted.
func (g *guest) checkChannels(t *testing.T) {
	t.Helper()
	c := &g.p.fds.channels
	seen, chunks, watches, pending := map[any]bool{}, 0, 0, 0
	open := []*description{}
	for _, d := range g.p.fds.table {
		open = append(open, d.file)
	}
	for _, th := range g.p.threads {
		open = append(open, th.wait.file, th.wait.source)
	}
	var hold func(s *socket)
	hold = func(s *socket) {
		if seen[s] {
			return
		}
		seen[s] = true
		chunks += len(s.chunks)
		for _, m := range s.messages {
			chunks += m.memory()
		}
		if s.n+s.held > maxSendBuffer || len(s.messages) > maxMessages || len(s.backlog) > maxBacklog+1 {
			t.Fatalf("a socket holds %d bytes, %d messages, %d connections", s.n+s.held, len(s.messages), len(s.backlog))
		}
		if s.peer != nil && s.peer.gone && s.peer.peer != nil {
			t.Fatal("a closed socket holds another one")
		}
		pending += len(s.backlog)
		for _, b := range s.backlog {
			hold(b)
		}
	}
	for _, d := range open {
		if d == nil || seen[d.file] {
			continue
		}
		switch f := d.file.(type) {
		case *pipeEnd:
			seen[f] = true
			if !seen[f.pipe] {
				chunks += len(f.chunks)
			}
			seen[f.pipe] = true
		case *epoll:
			seen[f] = true
			watches += len(f.watches)
		case *socket:
			hold(f)
		}
	}
	if chunks != c.chunks || chunks > maxChunks || watches != c.watches || watches > maxAllWatches || pending != c.pending || pending > maxPending {
		t.Fatalf("%d chunks, %d registrations, %d connections are counted as %d, %d, %d", chunks, watches, pending, c.chunks, c.watches, c.pending)
	}
	for _, s := range c.bound {
		if s.gone {
			t.Fatal("a closed socket has a name")
		}
	}
}

// checkText sees to it that what is read-only holds what its file does.
func (g *guest) checkText(t *testing.T) {
	t.Helper()
	want := map[*Place][]byte{&g.l.Exe: g.base[exePath], &g.l.Interp: g.base[interpPath]}
	for i := range g.l.Objects {
		o := &g.l.Objects[i]
		want[o] = make([]byte, page)
		if g.p.mem.filled[i] {
			want[o] = g.base[o.Path]
		}
	}
	for o, data := range want {
		if !bytes.Equal(g.m.mem[o.Lo:o.Lo+page], data[:page]) {
			t.Fatalf("the text of %s was written to", o.Path)
		}
	}
	if b := g.m.mem[g.l.VDSO : g.l.VDSO+page]; string(b[:4]) != "vdso" || !zeros(b[4:]) {
		t.Fatal("the vDSO was written to")
	}
	for at := range g.m.isTouched {
		if lo := uint64(at) * page; g.m.isTouched[at] && lo < uint64(len(g.m.mem)) && !g.m.allow(lo, page, platform.Read) && !zeros(g.m.mem[lo:lo+page]) {
			t.Fatalf("unmapped memory at %#x was written to", lo)
		}
	}
}

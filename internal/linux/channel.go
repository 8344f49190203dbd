package linux

import (
	"encoding/binary"
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

const (
	// chunkSize is the unit in which queues take memory of the host.
	chunkSize = 4096
	// maxChunks bounds what all queues hold together: 16 MiB.
	maxChunks = 4096
)

// The poll events that stand for "can read" and "can write" (fs/pipe.c and
// others: each is told under two names).
const (
	pollReadable = pollIn | 0x40
	pollWritable = pollOut | 0x100
)

// channels is what the process's pipes, sockets and their kin share. It ends
// with the table of descriptors.
type channels struct {
	// chunks counts the memory of all queues.
	chunks int
	// lastNode numbers what is not in the file tree.
	lastNode uint64
	// watches counts the registrations of all epolls.
	watches int
	// bound finds a socket by its name; lastName and lastPort are of the names
	// that were made up.
	bound              map[address]*socket
	lastName, lastPort int
	// pending counts the connections that nobody has accepted yet.
	pending int
	// timers are those that run.
	timers map[*timerFile]struct{}
}

// channel is an open file that is not in the tree and whose readiness changes:
// what epoll can watch.
type channel interface {
	file
	// edges counts what may have made the file ready to be read and to be
	// written: a new event is one that has not been counted before.
	edges() (in, out uint64)
	// stat describes it.
	stat() vfs.Stat
}

// node is what every channel is made of.
type node struct {
	id, ins, outs uint64
	mode          uint32
}

func (p *Process) newNode(mode uint32) node {
	p.fds.channels.lastNode++
	return node{id: p.fds.channels.lastNode, mode: mode}
}

func (n *node) inode() *vfs.Inode       { return nil }
func (n *node) seekable() bool          { return false }
func (n *node) edges() (in, out uint64) { return n.ins, n.outs }

// stat tells of a file on a device of its own, so that no two files look like
// one.
func (n *node) stat() vfs.Stat {
	return vfs.Stat{Dev: 13, Ino: n.id, Nlink: 1, Mode: n.mode, UID: userID, GID: userID, Blksize: chunkSize}
}

// stat describes an open file.
func (d *description) stat() vfs.Stat {
	if c, ok := d.file.(channel); ok {
		return c.stat()
	}
	if ino := d.inode(); ino != nil {
		return ino.Stat()
	}
	return streamStat()
}

// recordFile is a channel for which one write is one thing, in however many
// pieces of guest memory it lies.
type recordFile interface {
	channel
	// record gives how much of a write of n bytes is to be handed to write at
	// once, at most maxBuffer; zero means that there is no need to.
	record(n uint64) int
}

// scatterFile is a channel that puts what is read into guest memory itself, so
// that nothing is lost that has no place there.
type scatterFile interface {
	channel
	scatter(p *Process, iov []iovec) (uint64, syscall.Errno)
}

// put2 hands out two new descriptors to addr, or none.
func (p *Process) put2(addr uint64, a, b *description, cloexec bool) uint64 {
	out := make([]byte, 0, 8)
	var fds []int
	// A reference of its own until both are there: what fails is released.
	a.refs++
	b.refs++
	e := syscall.Errno(0)
	for _, f := range []*description{a, b} {
		fd, err := p.fds.add(f, 0, cloexec)
		if e = err; e != 0 {
			break
		}
		fds = append(fds, fd)
		out = binary.LittleEndian.AppendUint32(out, uint32(fd))
	}
	if e == 0 && !p.cpu.CopyOut(addr, out) {
		e = syscall.EFAULT
	}
	if e != 0 {
		for _, fd := range fds {
			p.closeFD(uint64(fd))
		}
	}
	p.unref(a)
	p.unref(b)
	return result(e)
}

// put1 hands out a new descriptor.
func (p *Process) put1(f *description, cloexec bool) uint64 {
	fd, e := p.fds.add(f, 0, cloexec)
	if e != 0 {
		f.refs++
		p.unref(f)
		return fail(e)
	}
	return uint64(fd)
}

// ioctls of files that are no terminals (include/uapi/asm-generic/ioctls.h).
const (
	ioNonblock = 0x5421 // FIONBIO
	ioUnread   = 0x541b // FIONREAD
)

// unread is how many bytes could be read without waiting.
func (d *description) unread() (int64, bool) {
	switch f := d.file.(type) {
	case *pipeEnd:
		return int64(f.n), true
	case *socket:
		return int64(f.unread()), !f.listening
	case treeFile:
		return d.inode().Stat().Size - d.pos, d.inode().Kind() == vfs.File
	}
	return 0, false
}

func (p *Process) ioctlUnread(f *description, addr uint64) uint64 {
	n, ok := f.unread()
	if !ok {
		return fail(syscall.ENOTTY)
	}
	return p.putBytes(addr, binary.LittleEndian.AppendUint32(nil, uint32(n)))
}

func (p *Process) ioctlNonblock(f *description, addr uint64) uint64 {
	var b [4]byte
	if !p.cpu.CopyIn(b[:], addr) {
		return fail(syscall.EFAULT)
	}
	f.flags &^= syscall.O_NONBLOCK
	if binary.LittleEndian.Uint32(b[:]) != 0 {
		f.flags |= syscall.O_NONBLOCK
	}
	return 0
}

// queue holds bytes on their way. It takes memory in chunks, so that what is
// counted is what is used.
type queue struct {
	chunks [][]byte
	// off is where in the first chunk the bytes begin, n how many there are.
	off, n int
}

// put appends b and gives how much of it there was memory for.
func (q *queue) put(c *channels, b []byte) int {
	total := 0
	for len(b) > 0 {
		end := q.off + q.n
		if end == len(q.chunks)*chunkSize {
			if c.chunks >= maxChunks {
				break
			}
			c.chunks++
			q.chunks = append(q.chunks, make([]byte, chunkSize))
		}
		k := copy(q.chunks[end/chunkSize][end%chunkSize:], b)
		b = b[k:]
		q.n, total = q.n+k, total+k
	}
	return total
}

// room reports whether there is memory for n more bytes.
func (q *queue) room(c *channels, n int) bool {
	free := len(q.chunks)*chunkSize - q.off - q.n
	return n <= free || (n-free+chunkSize-1)/chunkSize <= maxChunks-c.chunks
}

// front gives bytes from at on, as many as lie together and at most n.
func (q *queue) front(at, n int) []byte {
	n = min(n, q.n-at)
	if n <= 0 {
		return nil
	}
	at += q.off
	b := q.chunks[at/chunkSize][at%chunkSize:]
	return b[:min(n, len(b))]
}

// drop removes the first n bytes.
func (q *queue) drop(c *channels, n int) {
	q.off, q.n = q.off+n, q.n-n
	k := q.off / chunkSize
	if q.n == 0 {
		k = len(q.chunks)
		q.off = 0
	} else {
		q.off %= chunkSize
	}
	c.chunks -= k
	q.chunks = slices.Delete(q.chunks, 0, k)
}

// spread copies what a queue holds to guest memory and gives how much of it: an
// error only if it was nothing.
func (p *Process) spread(q *queue, iov []iovec) (int, syscall.Errno) {
	total := 0
	for _, v := range iov {
		for v.n > 0 {
			b := q.front(total, int(min(v.n, maxCount)))
			if len(b) == 0 {
				return total, 0
			}
			if !p.cpu.CopyOut(v.addr, b) {
				if total == 0 {
					return 0, syscall.EFAULT
				}
				return total, 0
			}
			total += len(b)
			v.addr, v.n = v.addr+uint64(len(b)), v.n-uint64(len(b))
		}
	}
	return total, 0
}

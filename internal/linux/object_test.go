package linux

import (
	"bytes"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// place gives the layout's object of a path.
func (g *guest) place(name string) *Place {
	for i := range g.l.Objects {
		if g.l.Objects[i].Path == name {
			return &g.l.Objects[i]
		}
	}
	g.t.Fatalf("no object %s", name)
	return nil
}

// loadMapping maps an object as the ELF loader's first mapping does.
func (g *guest) loadMapping(name string) uint64 {
	g.t.Helper()
	fd := g.open(name, syscall.O_RDONLY|syscall.O_CLOEXEC)
	defer g.must(unix.SYS_CLOSE, fd)
	o := g.place(name)
	return g.must(unix.SYS_MMAP, 0, o.Hi-o.Lo, syscall.PROT_READ, mapPrivate|mapDenyWrite, fd, 0)
}

// checkObject compares an object's memory to its file.
func (g *guest) checkObject(name string) {
	g.t.Helper()
	o, data := g.place(name), g.base[name]
	if !bytes.Equal(g.get(o.Lo, page), data[:page]) {
		g.t.Errorf("%s: the text is not the file's", name)
	}
	b := g.get(o.Lo+page, 2*page)
	if !bytes.Equal(b[:0x800], data[page:page+0x800]) || !zeros(b[0x800:0x1800]) {
		g.t.Errorf("%s: the data is not the file's, or what follows it is not zero", name)
	}
}

func TestTheLoadersFirstMappingOfAnObjectIsAtItsPlace(t *testing.T) {
	g := newGuest(t)
	o := g.place(libPath)
	if at := g.loadMapping(libPath); at != o.Lo {
		t.Fatalf("mapped at %#x, want %#x", at, o.Lo)
	}
	g.checkObject(libPath)
	fd := g.open(libPath, syscall.O_RDONLY)
	t.Run("later segments are in place already", func(t *testing.T) {
		g.t = t
		g.want(o.Lo+page, unix.SYS_MMAP, o.Lo+page, page, readWrite, mapPrivate|mapFixed|mapDenyWrite, fd, page)
		g.want(o.Lo, unix.SYS_MMAP, o.Lo, page, syscall.PROT_READ|syscall.PROT_EXEC, mapPrivate|mapFixed|mapDenyWrite, fd, 0)
	})
	t.Run("a second mapping is ordinary memory", func(t *testing.T) {
		g.t = t
		if at := g.loadMapping(libPath); at < g.l.Heap.Lo {
			t.Errorf("mapped at %#x", at)
		}
	})
	t.Run("a fixed mapping may not leave the object", func(t *testing.T) {
		g.t = t
		g.refused(syscall.ENOMEM, unix.SYS_MMAP, o.Hi-page, 2*page, readWrite, mapPrivate|mapFixed, fd, 0)
	})
}

func TestAnObjectIsOnlyPlacedForTheLoadersOwnMapping(t *testing.T) {
	g := newGuest(t)
	o := g.place(libPath)
	fd := g.open(libPath, syscall.O_RDONLY)
	n := o.Hi - o.Lo
	for name, a := range map[string][6]uint64{
		"without DENYWRITE": {0, n, syscall.PROT_READ, mapPrivate, fd, 0},
		"of another length": {0, n + page, syscall.PROT_READ, mapPrivate | mapDenyWrite, fd, 0},
		"of another offset": {0, n, syscall.PROT_READ, mapPrivate | mapDenyWrite, fd, page},
		"of unnamed memory": {0, n, 0, anonymous | mapDenyWrite, noFD, 0},
	} {
		if at := g.must(unix.SYS_MMAP, a[:]...); at < g.l.Heap.Lo {
			t.Errorf("%s: mapped at %#x", name, at)
		}
	}
	g.refused(syscall.ENOMEM, unix.SYS_MMAP, o.Lo, page, syscall.PROT_READ, mapPrivate|mapFixed, fd, 0)
	g.file("/work/libplain.so", string(g.base[libPath][:64]))
	copied := g.open("/work/libplain.so", syscall.O_RDONLY)
	if at := g.must(unix.SYS_MMAP, 0, n, syscall.PROT_READ, mapPrivate|mapDenyWrite, copied, 0); at < g.l.Heap.Lo {
		t.Errorf("a file of the layer was placed at %#x", at)
	}
}

func TestAnObjectThatIsLoadedAgainIsAsNew(t *testing.T) {
	g := newGuest(t)
	o := g.place(libPath)
	g.loadMapping(libPath)
	g.fill(o.Lo+page, 0x1800, 0xEE)
	g.want(0, unix.SYS_MUNMAP, o.Lo, o.Hi-o.Lo)
	if at := g.loadMapping(libPath); at != o.Lo {
		t.Fatalf("mapped at %#x", at)
	}
	g.checkObject(libPath)
}

func TestUnmappingAPartOfAnObjectKeepsItInUse(t *testing.T) {
	g := newGuest(t)
	o := g.place(libPath)
	g.loadMapping(libPath)
	g.want(0, unix.SYS_MUNMAP, o.Lo, page)
	if at := g.loadMapping(libPath); at == o.Lo {
		t.Error("an object in use was placed again")
	}
}

func TestAReservationForAnOverAlignedObjectIsItsPlace(t *testing.T) {
	g := newGuest(t)
	o := g.place(widePath)
	n := o.Hi - o.Lo + o.Align
	if at := g.must(unix.SYS_MMAP, 0, n, 0, anonymous, noFD, 0); at < g.l.Heap.Lo {
		t.Errorf("a reservation with nothing open is at %#x", at)
	}
	fd := g.open(widePath, syscall.O_RDONLY)
	if o.Lo%o.Align != 0 {
		t.Fatalf("the object's place %#x is not aligned", o.Lo)
	}
	g.want(o.Lo, unix.SYS_MMAP, 0, n, 0, anonymous, noFD, 0)
	g.want(o.Lo, unix.SYS_MMAP, o.Lo, o.Hi-o.Lo, syscall.PROT_READ, mapPrivate|mapFixed|mapDenyWrite, fd, 0)
	// The loader gives back what is left of the reservation.
	g.want(0, unix.SYS_MUNMAP, o.Hi, o.Align)
	g.checkObject(widePath)
	if at := g.must(unix.SYS_MMAP, 0, n, 0, anonymous, noFD, 0); at < g.l.Heap.Lo {
		t.Errorf("a second reservation is at %#x", at)
	}
}

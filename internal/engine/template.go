//go:build linux

package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/guest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/snapshot"
	"github.com/maf-sandbox/maf-sandbox-go/internal/vdso"
)

const (
	// bootTimeout bounds the boot of an interpreter; it takes 0.1 s.
	bootTimeout = 60 * time.Second
	// defaultGrace is how long a program has to obey an interrupt before it is
	// stopped hard. It keeps the return from a deadline below 25 ms.
	defaultGrace = 15 * time.Millisecond
	// writableBytes and writableInodes bound the guest's own files.
	writableBytes  = 64 << 20
	writableInodes = 16 << 10
	// workDir is the guest's working folder.
	workDir = "/work"
	// bootOutput bounds what is kept of a boot's messages.
	bootOutput = 4 << 10
)

// Config says what to make machines of.
type Config struct {
	// Image is the path of an image file.
	Image string
	// ImageID is the ID that the image must have; empty if any will do. Another
	// image is refused before anything of it is run.
	ImageID string
	// Cache is the folder that keeps templates between processes; empty means
	// none is kept.
	Cache string
	// Verified is the Info.Stamp of a template that a process trusted like this one
	// has verified; it is not verified again.
	Verified string
	// Code is a file of memory that processes with the same template share, for code
	// in large pages (platform.LargeCode); nil means that there is none. It is used
	// while New is called.
	Code *os.File
	// Platform runs the guests. The template does not close it.
	Platform platform.Platform
	// Memory is the guest's memory in bytes; zero means DefaultMemory.
	Memory int64
	// Grace is how long a program has to obey an interrupt before it is
	// stopped hard; zero means 15 ms.
	Grace time.Duration
	// Progress, if set, hears what takes long, from any goroutine.
	Progress func(string)
}

// Template is a booted image, from which any number of machines are made. It
// is safe for concurrent use.
type Template struct {
	config Config
	memory uint64
	image  *image.Image
	base   *base
	t      *snapshot.Template
	cached bool
	saving sync.WaitGroup
}

// Open boots an image, or takes the template that an earlier boot left in the
// cache.
func Open(ctx context.Context, c Config) (*Template, error) {
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Memory < MinMemory || c.Memory > MaxMemory {
		return nil, refused("memory of %d MiB was asked for; it can be from %d to %d MiB", c.Memory>>20, MinMemory>>20, MaxMemory>>20)
	}
	if c.Grace <= 0 {
		c.Grace = defaultGrace
	}
	im, err := image.Open(c.Image)
	if err != nil {
		return nil, &Error{Kind: KindUnavailable, Message: "the image cannot be used", Cause: err}
	}
	if c.ImageID != "" && c.ImageID != im.ID() {
		err := refused("the image %s has the ID %s; asked for was %.80q", c.Image, im.ID(), c.ImageID)
		return nil, errors.Join(err, im.Close())
	}
	t := &Template{config: c, memory: uint64(c.Memory), image: im}
	if t.base, err = newBase(im); err == nil {
		err = t.load(ctx)
	}
	if err != nil {
		_ = im.Close()
		var e *Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, &Error{Kind: KindInternal, Message: "no template of the interpreter", Cause: err}
	}
	return t, nil
}

func refused(format string, a ...any) *Error {
	return &Error{Kind: KindRefused, Message: fmt.Sprintf(format, a...), Usable: true}
}

// load takes the template from the cache or boots and keeps it.
func (t *Template) load(ctx context.Context) error {
	key := ""
	if t.config.Cache != "" {
		key = t.key()
		kept, err := snapshot.Read(t.config.Cache, key, t.config.Verified)
		switch {
		case err == nil:
			t.t, t.cached = kept, true
			t.share()
			return nil
		case errors.Is(err, snapshot.ErrAbsent):
		case errors.Is(err, snapshot.ErrDamaged):
			t.progress("the kept template is damaged and is made again")
		default:
			return &Error{Kind: KindUnavailable, Message: "the template cache cannot be used", Cause: err}
		}
	}
	t.progress("booting Python " + t.image.Manifest().Python)
	var err error
	if t.t, err = t.boot(ctx); err != nil {
		return err
	}
	// Nobody waits for the rest; Close does.
	t.saving.Go(func() {
		t.learn()
		if key == "" {
			return
		}
		if err := t.t.Write(t.config.Cache, key); err != nil {
			t.progress("the template could not be kept: " + err.Error())
		}
	})
	return nil
}

// share has the machines use code in large pages. It is only a saving: a kernel
// that has none to give is no failure.
func (t *Template) share() {
	if l, ok := t.config.Platform.(platform.LargeCode); ok && t.config.Code != nil {
		_ = l.UseLarge(t.t.Backing, t.t.Spans, int(t.config.Code.Fd()), t.t.Stamp)
	}
}

// sample is what nearly every program does.
const sample = "def f(x):\n    return x + 1\nprint(f(41), [1, 2.5], {'a': 'b'})\n"

// learn runs a small program in order to find the pages that every program
// writes to first.
func (t *Template) learn() {
	vm, err := t.New(context.Background())
	if err != nil {
		return // whoever needs a machine will hear of it
	}
	if _, err := vm.Run(context.Background(), Request{Code: []byte(sample)}); err == nil {
		t.t.Backing.SetHot(vm.machine.Changed())
	}
	_ = vm.Close()
}

func (t *Template) progress(s string) {
	if t.config.Progress != nil {
		t.config.Progress(s)
	}
}

// key names a template: everything that its memory depends on.
func (t *Template) key() string {
	h := sha256.New()
	for _, s := range []string{t.image.ID(), buildID(), t.config.Platform.Name(), t.config.Platform.CPU()} {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// layout places the image's program and libraries.
func (t *Template) layout() (*linux.Layout, linux.Program, error) {
	m := t.image.Manifest()
	p := linux.Program{
		VDSO: vdso.Build(platform.ClockPage),
		Dir:  workDir,
		// -I -S -B: nothing of an environment, no site, no byte code written.
		Argv: []string{m.Executable, "-I", "-S", "-B", "-X", "utf8", path.Join(guest.Dir, guest.Driver)},
		Env: []string{
			"HOME=" + workDir, "TMPDIR=/tmp", "LANG=C.UTF-8", "TZ=UTC",
			// One processor: thread pools of native libraries gain nothing.
			"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1",
			// And one processor has no use for a malloc arena for each thread.
			"MALLOC_ARENA_MAX=1",
			"LD_LIBRARY_PATH=" + strings.Join(m.LibraryPath, ":"),
			"MAF_SITE=" + strings.Join(m.SitePackages, ":"),
		},
	}
	var err error
	if p.Exe, err = t.image.Content(m.Executable); err != nil {
		return nil, p, err
	}
	if p.Interp, err = t.image.Content(m.Interp); err != nil {
		return nil, p, err
	}
	var objects []linux.Object
	for _, o := range m.Objects {
		x := linux.Object{Path: o.Path, Align: max(o.Align, platform.PageSize)}
		for _, l := range o.Loads {
			x.Segments = append(x.Segments, linux.Segment{
				Off: l.Off, Filesz: l.Filesz, Vaddr: l.Vaddr, Memsz: l.Memsz, Prot: linux.ProtOf(elf.ProgFlag(l.Flags)),
			})
		}
		objects = append(objects, x)
	}
	l, err := linux.NewLayout(m.Executable, p.Exe, m.Interp, p.Interp, objects, MaxMemory)
	return l, p, err
}

// boot starts the interpreter and makes a template of it once its driver waits
// for the first request.
func (t *Template) boot(ctx context.Context) (*snapshot.Template, error) {
	l, prog, err := t.layout()
	if err != nil {
		return nil, &Error{Kind: KindUnavailable, Message: "the image cannot be used", Cause: err}
	}
	m, fd, err := t.config.Platform.Boot(l.Size(t.memory), l.Spans(), bootPages(l))
	if err != nil {
		return nil, &Error{Kind: KindUnavailable, Message: "no virtual machine", Cause: err}
	}
	defer func() { _ = m.Close() }()
	var said []byte
	p := linux.New(linux.Config{
		Machine: m, Layout: l, Memory: t.memory, FS: t.newFS(m), Random: rand.Reader,
		Output: func(_ int, b []byte) { said = append(said, b[:min(len(b), bootOutput-len(said))]...) },
	})
	m.StartClock(uint64(time.Second))
	if err := p.Exec(prog); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	limit := time.AfterFunc(bootTimeout, p.Stop)
	defer limit.Stop()
	defer context.AfterFunc(ctx, p.Stop)()
	var out linux.Outcome
	platform.OnThread(m, func() {
		out, err = p.Run()
		p.Drain()
	})
	if err == nil && (out.Kind != linux.Parked || out.Status != statusReady) {
		err = bootError(ctx, out, said)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return snapshot.Take(m, fd, p, l)
}

// bootPages are the pages that an interpreter with a bare standard library
// writes to before it is ready; what of them it does not is dropped again.
func bootPages(l *linux.Layout) []platform.Range {
	const heap, brk, stack = 6 << 20, 1 << 20, 128 << 10
	return []platform.Range{
		{Lo: l.Heap.Lo, Hi: l.Heap.Lo + heap}, {Lo: l.Brk.Lo, Hi: l.Brk.Lo + brk}, {Lo: l.Stack.Hi - stack, Hi: l.Stack.Hi},
	}
}

func bootError(ctx context.Context, out linux.Outcome, said []byte) error {
	if ctx.Err() != nil {
		return &Error{Kind: KindCanceled, Message: "the boot was cancelled", Cause: ctx.Err()}
	}
	how := "did not get ready"
	switch out.Kind {
	case linux.Exited:
		how = fmt.Sprintf("ended with status %d", out.Status)
	case linux.Killed:
		how = fmt.Sprintf("was ended by %s at %#x", signalName(out.Signal), out.IP)
	case linux.Stopped:
		how = fmt.Sprintf("was not ready within %v", bootTimeout)
	}
	return &Error{Kind: KindInternal, Message: fmt.Sprintf("the interpreter %s while booting; it said: %q", how, said)}
}

// newFS makes an empty writable layer over the image.
func (t *Template) newFS(m platform.Machine) *vfs.FS {
	return vfs.New(t.base, fsLimits, fsClock(m))
}

var fsLimits = vfs.Limits{Bytes: writableBytes, Inodes: writableInodes}

func fsClock(m platform.Machine) vfs.Clock {
	return func() (int64, int64) {
		_, real := m.Clock()
		return int64(real / 1e9), int64(real % 1e9)
	}
}

// Info describes what a template runs.
type Info struct {
	// Engine and Isolation are the platform's name and rung.
	Engine, Isolation string
	// Image is the image's ID, Python the interpreter's version.
	Image, Python string
	// Cached says that the template came from the cache, and Stamp which it was,
	// for Config.Verified.
	Cached bool
	Stamp  string
}

// Info describes the template.
func (t *Template) Info() Info {
	return Info{
		Engine: t.config.Platform.Name(), Isolation: t.config.Platform.Isolation(),
		Image: t.image.ID(), Python: t.image.Manifest().Python, Cached: t.cached, Stamp: t.t.Stamp,
	}
}

// Sync waits until a new template has been written to the cache.
func (t *Template) Sync() { t.saving.Wait() }

// Close releases the template. No machine of it may be left.
func (t *Template) Close() error {
	t.saving.Wait()
	return errors.Join(t.t.Close(), t.image.Close())
}

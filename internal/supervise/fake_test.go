//go:build linux

package supervise

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// fakeRole is a worker without a machine.
const fakeRole = "fake"

// facts are what a fake worker tells of itself, in Ready.Isolation.
type facts struct {
	PID         int
	Child       int // in a session of its own, or 0
	Descriptors []string
	Environment []string
	Data        uint64
}

// fake is a worker that is told by Start.Image what to do.
type fake struct {
	conn *os.File
	does string
}

func fakeMain() error {
	f := fake{conn: os.NewFile(helper.First, "connection")}
	var start wire.Start
	first, err := wire.NewReader(f.conn, wire.MaxPayload).Next()
	if err != nil {
		return err
	}
	if err := wire.Decode(first.Payload, &start); err != nil {
		return err
	}
	f.does = start.Image
	if done, err := f.misbehave(start); done {
		return err
	}
	told, err := f.introduce()
	if err != nil {
		return err
	}
	if err := f.say(wire.KindReady, wire.Ready{Engine: "fake", Isolation: told}); err != nil {
		return err
	}
	return f.serve()
}

func (f fake) say(kind wire.Kind, v any) error {
	b, err := wire.Encode(v)
	if err != nil {
		return err
	}
	return wire.NewWriter(f.conn).Write(wire.Frame{Kind: kind, Payload: b})
}

// misbehave is what is done instead of being ready.
func (f fake) misbehave(start wire.Start) (bool, error) {
	header := func(size uint32, kind wire.Kind) []byte {
		b := binary.LittleEndian.AppendUint32(nil, size)
		return append(binary.LittleEndian.AppendUint32(b, uint32(kind)), 0, 0, 0, 0)
	}
	var raw []byte
	switch f.does {
	default:
		return false, nil
	case "refuses":
		return true, f.say(wire.KindDone, wire.Done{Kind: "unavailable", Message: "no machine"})
	case "crashes":
		fmt.Fprintln(os.Stderr, "first\nboom")
		os.Exit(3)
	case "needs more memory":
		fmt.Fprintln(os.Stderr, "fatal error: runtime: out of memory")
		os.Exit(2)
	case "closes its socket":
		_ = f.conn.Close()
	case "is late":
		time.Sleep(start.Grace)
		raw = header(1, wire.KindReady)
	case "is mute":
	case "babbles":
		raw = []byte("HTTP/1.1 200 OK\r\n")
	case "sends another frame":
		raw = header(0, wire.KindStdout)
	case "sends too much":
		raw = append(header(wire.MaxOutputPayload+1, wire.KindReady), bytes.Repeat([]byte{0xa0}, wire.MaxOutputPayload+1)...)
	case "claims too much":
		raw = header(1<<32-1, wire.KindReady)
	case "is ready in no language":
		raw = append(header(4, wire.KindReady), "\xff\xff\xff\xff"...)
	case "breaks off":
		_, err := f.conn.Write(append(header(100, wire.KindReady), 1, 2, 3))
		return true, err
	}
	_, _ = f.conn.Write(raw) // may be closed by now
	forever()
	return true, nil
}

// introduce gives the facts.
func (f fake) introduce() (string, error) {
	t := facts{PID: os.Getpid(), Environment: os.Environ()}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if n, bad := strconv.Atoi(e.Name()); err != nil || bad != nil || isOwn(n) {
			continue // the folder's, and the runtime's
		}
		t.Descriptors = append(t.Descriptors, e.Name()+" "+target)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &lim); err != nil {
		return "", err
	}
	t.Data = lim.Max
	if f.does == "has a child" {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), hostVariable+"=sleep")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return "", err
		}
		t.Child = c.Process.Pid
	}
	b, err := json.Marshal(t)
	return string(b), err
}

func (f fake) serve() error {
	switch f.does {
	case "is stubborn":
		forever()
	case "echoes":
		_, err := io.Copy(f.conn, f.conn)
		return err
	case "closes its socket later":
		_ = f.conn.Close()
		forever()
	}
	_, err := f.conn.Read(make([]byte, 1))
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	case f.does == "eats":
		b := make([]byte, 512<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		runtime.KeepAlive(b)
	case f.does == "has many threads":
		for range 2 * maxTasks {
			go func() { runtime.LockOSThread(); forever() }()
		}
		forever()
	}
	fmt.Fprintln(os.Stderr, "told to end")
	os.Exit(7)
	return nil
}

// isOwn says that this process has made a descriptor itself.
func isOwn(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || fd != helper.First && flags&unix.FD_CLOEXEC != 0
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// Roots with these beginnings stand for the enforcers of the tests; a folder
// follows.
const (
	// obstinate are cages that can only be removed when the folder has no file
	// named busy.
	obstinateRoot = "/obstinate:"
	// plain are control groups without a memory limit.
	plainRoot = "/plain:"
)

// openTestEnforcer is openEnforcer in tests.
func openTestEnforcer(ctx context.Context, l Limits) (enforcer, error) {
	if dir, ours := strings.CutPrefix(l.Root, obstinateRoot); ours {
		return obstinate(dir), nil
	}
	if dir, ours := strings.CutPrefix(l.Root, plainRoot); ours {
		root, err := cgroup.Open(dir)
		if err != nil {
			return nil, err
		}
		return newControlGroups(root, 0), nil
	}
	return newEnforcer(ctx, l)
}

// obstinate makes cages that are files in a folder.
type obstinate string

func (o obstinate) prepare(name string) (cage, error) {
	c := obstinateCage{rlimit{4 << 30}, filepath.Join(string(o), "busy"), filepath.Join(string(o), "worker-"+name)}
	return c, os.WriteFile(c.file, nil, 0o600)
}

type obstinateCage struct {
	rlimit
	busy, file string
}

func (c obstinateCage) remove(context.Context) error {
	if _, err := os.Stat(c.busy); err == nil {
		return fmt.Errorf("remove %s: %w", c.file, unix.EBUSY)
	}
	return os.Remove(c.file)
}

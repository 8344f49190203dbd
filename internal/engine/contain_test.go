//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// mistaken is a platform whose machines let the personality fail as if it had
// a mistake: in the middle of answering a system call.
type mistaken struct {
	platform.Platform
	// fail is called when guest memory is read, in place of a mistake.
	fail atomic.Pointer[func()]
}

func (p *mistaken) Clone(b *platform.Backing, size uint64, spans []platform.Span, c *platform.Context) (platform.Machine, error) {
	m, err := p.Platform.Clone(b, size, spans, c)
	if err != nil {
		return nil, err
	}
	return &mistakenMachine{m, p}, nil
}

type mistakenMachine struct {
	platform.Machine
	p *mistaken
}

func (m *mistakenMachine) CopyIn(dst []byte, addr uint64) bool {
	// Only the attacker's request is of this length.
	if len(dst) == attackSize {
		(*m.p.fail.Load())()
	}
	return m.Machine.CopyIn(dst, addr)
}

const attackSize = 12345

// faultingMap is a mapping whose file is gone: touching it raises SIGBUS.
func faultingMap(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return b
}

// A mistake in the personality costs the machine whose program provoked it,
// and nobody else.
func TestAPanicOfThePersonalityIsContained(t *testing.T) {
	p := &mistaken{Platform: hosttest.Open(t)}
	tm := template(t, func(c *engine.Config) { c.Platform = p })
	tm.Sync()
	bystander := machine(t, tm)
	output(t, bystander, "kept = 42", "")
	gone := faultingMap(t)
	var nothing *[attackSize]byte
	sum := 0
	for name, fail := range map[string]func(){
		"panic":         func() { panic("a mistake") },
		"index":         func() { sum += int(make([]byte, sum)[attackSize]) },
		"nil pointer":   func() { sum += int(nothing[5]) },
		"memory fault":  func() { sum += int(gone[0]) },
		"runtime error": func() { _ = any(sum).(string) },
	} {
		t.Run(name, func(t *testing.T) {
			p.fail.Store(&fail)
			before := count(t)
			vm, err := tm.New(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() { // another one runs meanwhile
				res, err := bystander.Run(context.Background(), engine.Request{Code: []byte("print(sum(range(100_000)), kept)")})
				if err != nil || string(res.Stdout) != "4999950000 42\n" {
					t.Errorf("the bystander: %q, %v", res.Stdout, err)
				}
			})
			res, err := vm.Run(context.Background(), engine.Request{
				Code: []byte("print('said', flush=True)\nimport os\nos.write(os.open('/work/x', os.O_CREAT | os.O_WRONLY), b'x' * 12345)\nprint('unreached')"),
			})
			wg.Wait()
			var e *engine.Error
			var pe *engine.PanicError
			if !errors.As(err, &e) || e.Kind != engine.KindInternal || e.Usable || !errors.As(err, &pe) {
				t.Errorf("error %v", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the message has several lines: %q", err)
			}
			if string(res.Stdout) != "said\n" {
				t.Errorf("stdout %q", res.Stdout)
			}
			afterwards(t, vm, true)
			if err := vm.Close(); err != nil {
				t.Error(err)
			}
			settles(t, before)
			output(t, machine(t, tm), "print(6*7)", "42\n")
			output(t, bystander, "print(kept)", "42\n")
		})
	}
}

// A template file that was cut off while it is in use costs its own machines
// only, whether they exist already or are made afterwards.
func TestATemplateFileThatIsCutOffIsContained(t *testing.T) {
	sound := machine(t, template(t, nil))
	dir := filepath.Join(scratch, "cut off")
	boot := template(t, func(c *engine.Config) { c.Cache = dir })
	boot.Sync()
	tm := template(t, func(c *engine.Config) { c.Cache = dir })
	if !tm.Info().Cached {
		t.Fatal("the template was not kept")
	}
	old := machine(t, tm)
	output(t, old, "print(6*7)", "42\n")
	files, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	if err := errors.Join(os.Chmod(files[0], 0o600), os.Truncate(files[0], 4096)); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Run(context.Background(), engine.Request{Code: []byte("import sqlite3, json, xml.etree.ElementTree")}); err == nil {
		t.Log("all that the program needed was in memory")
	}
	if err := old.Reset(context.Background()); !errors.Is(err, engine.ErrInternal) && !errors.Is(err, engine.ErrRefused) {
		t.Errorf("a machine was reset to what is gone: %v", err)
	}
	if vm, err := tm.New(context.Background()); err == nil {
		_, err = vm.Run(context.Background(), engine.Request{Code: []byte("print(6*7)")})
		if err == nil {
			t.Error("a machine of what is gone runs")
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	}
	output(t, sound, "print(6*7)", "42\n")
}

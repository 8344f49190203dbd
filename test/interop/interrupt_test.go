//go:build unix

package interop

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
)

// heldDisposal is a control that disposes when it is let, whatever became of who
// asked.
type heldDisposal struct {
	*control.Memory
	entered, release, settled chan struct{}
}

func (h heldDisposal) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	close(h.entered)
	<-h.release
	defer close(h.settled)
	return h.Memory.Dispose(context.WithoutCancel(ctx), id, timeout)
}

// An operator who interrupts a disposal is told of no success, and finds out by
// asking again (G4).
func TestAnInterruptedDeleteIsUnconfirmedAndItsRepeatFindsTheTruth(t *testing.T) {
	one := control.DemoRecords("go-host", nowForTests)[0]
	interrupt := func(t *testing.T, console string) {
		dir := shortDir(t)
		memory := control.NewMemory(one)
		held := heldDisposal{memory, make(chan struct{}), make(chan struct{}), make(chan struct{})}
		// Python's console ends when the host has answered, whatever it has said.
		server := serveWith(t, control.ServerConfig{Control: held, SourceID: "go-host", Directory: dir, DisposeTimeout: 3 * time.Second})
		start := func() (*exec.Cmd, *bytes.Buffer) {
			c := exec.Command(console, "delete", one.InstanceID, "--yes", "--timeout", "60")
			c.Env = pythonEnv(dir)
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, &said
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			bound := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
			t.Cleanup(func() { bound.Stop() })
			return c, &said
		}
		c, said := start()
		select {
		case <-held.entered:
		case <-time.After(patience):
			t.Fatal("the host is not asked")
		}
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // its status is looked at
		if code := c.ProcessState.ExitCode(); code != 130 || strings.Contains(said.String(), "disposed:") {
			t.Errorf("interrupted: exit status %d, %q", code, said)
		}
		close(held.release)
		<-held.settled
		// The same host, which is not held any more.
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		serve(t, dir, "go-host", memory)
		c, said = start()
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != 3 {
			t.Errorf("the repeat: exit status %d, %q", code, said)
		}
	}
	t.Run("ours", func(t *testing.T) {
		program, err := exec.LookPath(command.Program)
		if err != nil {
			t.Fatal(err)
		}
		interrupt(t, program)
	})
	eachPeer(t, func(t *testing.T, venv string) { interrupt(t, filepath.Join(venv, "bin/mst")) })
}

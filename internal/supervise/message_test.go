//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func FuzzMessagesAreDecodedOrRefused(f *testing.F) {
	for _, m := range []message{
		{}, {Kind: kindAcquire, Call: 1}, {Kind: kindConfigure, Settings: &settings{Role: "worker"}},
		{Kind: kindGranted, Ready: &wire.Ready{Engine: "e"}}, {Kind: kindGone, Gone: &GoneError{Signal: 9, Diagnostics: "d"}},
		{Kind: kindRefused, Failure: &StartError{Kind: "k"}}, {Kind: kindTrouble, Text: "t"}, {Kind: kindLast + 1},
	} {
		b, err := wire.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 0)
		f.Add(b, maxFiles)
	}
	f.Fuzz(func(t *testing.T, b []byte, files int) {
		m, err := decode(b, files)
		if err != nil {
			if !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("error %v", err)
			}
			return
		}
		if m.Kind == kindGone && m.Gone == nil || m.Kind == kindGranted && (m.Ready == nil || files != maxFiles) || m.Kind == 0 || m.Kind > kindLast {
			t.Errorf("accepted %+v", m)
		}
	})
}

// channels are the two ends of a control socket.
func channels(t *testing.T) (a, b *channel) {
	t.Helper()
	x, y, err := pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = newChannel(x); err != nil {
		t.Fatal(err)
	}
	if b, err = newChannel(y); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.conn.Close(); _ = b.conn.Close() })
	return a, b
}

func TestMessageThatBreaksTheRulesIsAnError(t *testing.T) {
	for name, send := range map[string]func(a *channel) error{
		"garbage":   func(a *channel) error { _, err := a.conn.Write([]byte("GET /")); return err },
		"too large": func(a *channel) error { _, err := a.conn.Write(make([]byte, maxMessage+2)); return err },
		"descriptors with what has none": func(a *channel) error {
			return a.send(message{Kind: kindEnd}, os.Stdin, os.Stdin)
		},
	} {
		a, b := channels(t)
		if err := send(a); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m, _, err := b.receive(); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	a, _ := channels(t)
	if err := a.send(message{Text: strings.Repeat("x", maxMessage)}); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("a message that is too large to be sent: %v", err)
	}
}

func TestDescriptorsThatDoNotFitAreNotThere(t *testing.T) {
	a, b := channels(t)
	m, err := wire.Encode(message{Kind: kindGranted, Ready: &wire.Ready{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.conn.WriteMsgUnix(m, unix.UnixRights(0, 0, 0, 0, 0), nil); err != nil {
		t.Fatal(err)
	}
	if got, files, err := b.receive(); err != nil || len(files) != 0 || got.Kind != kindGranted {
		t.Errorf("%+v with %d descriptors, %v", got, len(files), err)
	}
}

func TestDiagnosticsOfAnySizeFitIntoAMessage(t *testing.T) {
	var h head
	for range 40 {
		if n, err := h.Write([]byte(strings.Repeat("a\xff", 1<<10))); n != 2<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	a, b := channels(t)
	if err := a.send(message{Kind: kindGone, Gone: &GoneError{Diagnostics: h.String()}}); err != nil {
		t.Fatal(err)
	}
	m, _, err := b.receive()
	if err != nil || len(m.Gone.Diagnostics) != maxDiagnostics {
		t.Fatalf("%d bytes of diagnostics, %v", len(m.Gone.Diagnostics), err)
	}
}

func TestEndsAreDescribedInOneLine(t *testing.T) {
	for want, err := range map[string]error{
		"the worker ended with exit code 3: boom":            &GoneError{ExitCode: 3, Diagnostics: "first\nboom\n"},
		"the worker was ended by signal 9 (killed)":          &GoneError{ExitCode: -1, Signal: 9},
		"the worker reached its memory limit":                &GoneError{Signal: 9, OutOfMemory: true},
		"start of a worker: no virtual machine: no /dev/kvm": &StartError{Message: "no virtual machine", Diagnostics: "no /dev/kvm"},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// stuck is a cage that cannot be removed for a while.
type stuck struct {
	kills, removes int
}

var errStuck = errors.New("device or resource busy")

func (c *stuck) attributes(*syscall.SysProcAttr) {}
func (c *stuck) started(int) error               { return nil }
func (c *stuck) outOfMemory(GoneError) bool      { return false }
func (c *stuck) kill() error {
	if c.kills++; c.kills == 1 {
		return errStuck
	}
	return nil
}

func (c *stuck) remove(context.Context) error {
	if c.removes++; c.removes < 3 {
		return errStuck
	}
	return nil
}

func TestRemovingIsTriedUntilItIsConfirmed(t *testing.T) {
	c := new(stuck)
	p := &process{cage: c, ended: make(chan struct{})}
	close(p.ended)
	troubles := 0
	p.remove(func(err error) {
		if troubles++; !errors.Is(err, errStuck) {
			t.Errorf("trouble %v", err)
		}
	})
	if troubles != 3 || c.removes != 3 || c.kills != 4 {
		t.Errorf("%d troubles, %+v", troubles, c)
	}
}

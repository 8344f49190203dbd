package streams

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestSinkPassesBytesUnchangedIntoPipes(t *testing.T) {
	s, out, errOut := Test("")
	stdout, stderr := s.Guest(false, nil)
	const text = "a\x1b[31m\xff\x00"
	for _, k := range []*Sink{stdout, stderr} {
		if _, err := k.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != text || errOut.String() != text {
		t.Errorf("got %q and %q, want %q", out, errOut, text)
	}
}

func TestSinkNeutralisesOnATerminalUnlessRaw(t *testing.T) {
	for _, r := range []struct {
		name string
		raw  bool
		want string
	}{
		{"neutralised", false, `^[c\xe2`},
		{"raw", true, "\x1bc\xe2"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s, out, _ := Test("")
			s.OutTTY = true
			stdout, _ := s.Guest(r.raw, nil)
			_, _ = stdout.Write([]byte("\x1bc\xe2"))
			if err := stdout.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != r.want {
				t.Errorf("got %q, want %q", out, r.want)
			}
		})
	}
}

func TestSinkKeepsItsFirstFailureAndTellsOnce(t *testing.T) {
	for _, r := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"closed pipe", &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, ErrPipe, "standard output: "},
		{"full device", &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}, ErrWrite, "standard output: write failed: no space left on device"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s, _, errOut := Test("")
			s.Out = failing{r.err}
			var told []error
			stdout, stderr := s.Guest(false, func(err error) { told = append(told, err) })
			for range 2 {
				if _, err := stdout.Write([]byte("x")); !errors.Is(err, r.want) {
					t.Errorf("Write: %v, want %v", err, r.want)
				}
			}
			if err := stdout.Close(); !errors.Is(err, r.want) || !strings.HasPrefix(err.Error(), r.text) {
				t.Errorf("Close: %v, want %v with %q", err, r.want, r.text)
			}
			if _, err := stderr.Write([]byte("x")); !errors.Is(err, r.want) || errOut.Len() != 0 {
				t.Errorf("the other stream goes on: %v, %q", err, errOut)
			}
			if len(told) != 1 {
				t.Errorf("told %d times, want once", len(told))
			}
		})
	}
}

func TestSinksOfOneTerminalShareTheCursor(t *testing.T) {
	s, _, _ := Test("")
	s.OutTTY, s.ErrTTY = true, true
	stdout, stderr := s.Guest(false, nil)
	_, _ = stdout.Write([]byte("half"))
	if !stderr.MidLine() {
		t.Error("stderr does not know that stdout left a line open")
	}
	_, _ = stderr.Write([]byte("\n"))
	if stdout.MidLine() {
		t.Error("stdout does not know that the line was ended")
	}
}

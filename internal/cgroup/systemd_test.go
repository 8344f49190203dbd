//go:build linux

package cgroup

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// fakeSystemd is a message bus with systemd on it, as far as StartScope goes.
type fakeSystemd struct {
	refuse string // the error of StartTransientUnit
	result string // of the job
	group  dbus.Variant
	silent bool // the job never ends

	mu   sync.Mutex
	unit string
	args []any
}

func (f *fakeSystemd) listen(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer func() { _ = c.Close() }()
				if err := f.serve(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return socket
}

func (f *fakeSystemd) serve(c net.Conn) error {
	r := bufio.NewReader(c)
	if err := authenticate(c, r); err != nil {
		return err
	}
	send := func(m *dbus.Message, headers map[dbus.HeaderField]any, body ...any) error {
		m.Headers, m.Body = map[dbus.HeaderField]dbus.Variant{}, body
		for k, v := range headers {
			m.Headers[k] = dbus.MakeVariant(v)
		}
		if len(body) > 0 {
			m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
		}
		return m.EncodeTo(c, binary.LittleEndian)
	}
	for {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return err
		}
		to := map[dbus.HeaderField]any{dbus.FieldReplySerial: m.Serial(), dbus.FieldSender: systemdName}
		reply := func(body ...any) error { return send(&dbus.Message{Type: dbus.TypeMethodReply}, to, body...) }
		const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
		switch member := m.Headers[dbus.FieldMember].Value().(string); member {
		case "Hello":
			err = reply(":1.1")
		case "AddMatch", "Subscribe":
			err = reply()
		case "StartTransientUnit":
			f.mu.Lock()
			f.unit, f.args = m.Body[0].(string), m.Body
			f.mu.Unlock()
			if f.refuse != "" {
				to[dbus.FieldErrorName] = f.refuse
				err = send(&dbus.Message{Type: dbus.TypeError}, to, "refused")
				break
			}
			if err = reply(job); err != nil || f.silent {
				break
			}
			for _, j := range []dbus.ObjectPath{"/org/freedesktop/systemd1/job/6", job} { // another's, then ours
				err = errors.Join(err, send(&dbus.Message{Type: dbus.TypeSignal}, map[dbus.HeaderField]any{
					dbus.FieldPath: systemdPath, dbus.FieldInterface: systemdManager, dbus.FieldMember: "JobRemoved", dbus.FieldSender: systemdName,
				}, uint32(7), j, f.unit, f.result))
			}
		case "GetUnit":
			err = reply(dbus.ObjectPath("/org/freedesktop/systemd1/unit/x"))
		case "Get":
			err = reply(f.group)
		default:
			return fmt.Errorf("unexpected call of %s", member)
		}
		if err != nil {
			return err
		}
	}
}

// authenticate plays the server of the D-Bus specification's SASL handshake.
func authenticate(c net.Conn, r *bufio.Reader) error {
	if _, err := r.ReadByte(); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR\r\n"
		switch command, _, _ := strings.Cut(strings.TrimSpace(line), " "); command {
		case "AUTH":
			answer = "REJECTED EXTERNAL\r\n"
			if strings.Contains(line, "EXTERNAL") {
				answer = "OK 0123456789abcdef0123456789abcdef\r\n"
			}
		case "BEGIN":
			return nil
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return err
		}
	}
}

func TestScopeIsStartedWithDelegation(t *testing.T) {
	f := &fakeSystemd{result: "done", group: dbus.MakeVariant("/user.slice/x.scope")}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	s, err := startScope(ctx, f.listen(t), "abc", []int{41, 42})
	if err != nil {
		t.Fatal(err)
	}
	if s.Unit != "maf-sandbox-abc.scope" || s.Path != "/sys/fs/cgroup/user.slice/x.scope" {
		t.Errorf("%+v", s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := fmt.Sprint(f.args...)
	for _, want := range []string{"Delegate", "[41, 42]", "maf-sandbox-abc.scope", "fail"} {
		if !strings.Contains(sent, want) {
			t.Errorf("no %q in %s", want, sent)
		}
	}
}

func TestScopeThatCannotBeHadIsAnError(t *testing.T) {
	good := dbus.MakeVariant("/x.scope")
	for _, c := range []struct {
		name string
		f    *fakeSystemd
		want string
	}{
		{"refused", &fakeSystemd{refuse: "org.freedesktop.DBus.Error.AccessDenied"}, "refused"},
		{"failed job", &fakeSystemd{result: "failed", group: good}, `"failed"`},
		{"group of another type", &fakeSystemd{result: "done", group: dbus.MakeVariant(7)}, "is a int32"},
		{"no group", &fakeSystemd{result: "done", group: dbus.MakeVariant("")}, `""`},
		{"the hierarchy's root", &fakeSystemd{result: "done", group: dbus.MakeVariant("/")}, `"/"`},
		{"a group outside", &fakeSystemd{result: "done", group: dbus.MakeVariant("/../../etc")}, "etc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			_, err := startScope(ctx, c.f.listen(t), "abc", []int{1})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %s", err, c.want)
			}
		})
	}
	if _, err := startScope(context.Background(), "/nowhere", "abc", nil); err == nil || !strings.Contains(err.Error(), "no message bus") {
		t.Errorf("error %v", err)
	}
	if _, err := startScope(context.Background(), "/nowhere", "a/b", nil); !errors.Is(err, ErrName) {
		t.Errorf("error %v", err)
	}
}

func TestSilentSystemdEndsWithTheContext(t *testing.T) {
	f := &fakeSystemd{silent: true}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := startScope(ctx, f.listen(t), "abc", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.DeadlineExceeded", err)
	}
}

func TestScopeOfTheRealSystemdCanLimitMemory(t *testing.T) {
	if !expect.Systemd.Promised() {
		t.Skip("needs systemd as process 1: runs in the test VM")
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	other := start(t, "sleep", nil, 1)
	// An unprivileged process can only use a scope that it is in itself.
	s, err := StartScope(ctx, fmt.Sprintf("test-%d", os.Getpid()), os.Getpid(), other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := "user"
	if os.Geteuid() == 0 {
		want = "system" // root has no manager of its own here
	}
	if s.Manager != want {
		t.Errorf("made by the %s manager, want %s", s.Manager, want)
	}
	r, err := Settle(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Memory(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{os.Getpid(), other.Process.Pid} {
		if at := groupOf(t, pid); !strings.HasSuffix(at, s.Unit+"/host") {
			t.Errorf("process %d is in %s", pid, at)
		}
	}
	g := newGroup(t, r, Limits{MemoryMax: 64 << 20})
	start(t, "eat", g, 1)
	if err := g.WaitEmpty(ctx); err != nil {
		t.Fatal(err)
	}
	if e, err := g.Events(); err != nil || !e.Killed() {
		t.Errorf("events %+v, %v", e, err)
	}
}

package bench

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestWhatThereIsMoreOfThanBeforeIsALeak(t *testing.T) {
	was := stock{processes: 1, descriptors: 10, goroutines: 5, memory: 30}
	for _, r := range []struct {
		name string
		now  stock
		want string
	}{
		{"the same", was, ""},
		{"less", stock{memory: 1}, ""},
		{"a little memory", stock{1, 10, 5, 0, 30 + slackMiB}, ""},
		{"a process", stock{2, 10, 5, 0, 30}, "2 processes, 1 before"},
		{"a descriptor", stock{1, 11, 5, 0, 30}, "11 descriptors, 10 before"},
		{"a goroutine", stock{1, 10, 6, 0, 30}, "6 goroutines"},
		{"a group", stock{1, 10, 5, 1, 30}, "1 control groups, 0 before"},
		{"memory", stock{1, 10, 5, 0, 60}, "60 MiB of memory, 30 before"},
	} {
		err := r.now.leak(was)
		if (err == nil) != (r.want == "") || err != nil && !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want %q", r.name, err, r.want)
		}
	}
}

func TestEveryHundredthWorkerIsKilledInTurnsIdleAndInARun(t *testing.T) {
	var killed []int
	for i := range 400 {
		if f := fateOf(i); f != keepAlive {
			killed = append(killed, i)
			if want := map[bool]fate{true: killIdle, false: killInARun}[i/100%2 == 0]; f != want {
				t.Errorf("cycle %d: fate %d, want %d", i, f, want)
			}
		}
	}
	if want := []int{99, 199, 299, 399}; !slices.Equal(killed, want) {
		t.Errorf("killed in %v, want %v", killed, want)
	}
}

func TestKibibytesAreReadByTheirLabel(t *testing.T) {
	const text = "Rss:    2048 kB\nPss:    512 kB\nPss_Dirty:  1 kB\n"
	if got, err := kibibytes([]byte(text), "Pss:"); err != nil || got != 0.5 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "Pss: x kB\n", "Pss: 1\n"} {
		if got, err := kibibytes([]byte(text), "Pss:"); err == nil {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

// shell starts a shell that has a child and waits until it is asked to end.
func shell(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 600 & echo; read x; kill $!; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestDescendantsAreChildrenAndTheirs(t *testing.T) {
	cmd := shell(t)
	all, err := descendants()
	if err != nil {
		t.Fatal(err)
	}
	child, grandchild := false, false
	for _, p := range all {
		child = child || p == process{cmd.Process.Pid, os.Getpid()}
		grandchild = grandchild || p.parent == cmd.Process.Pid
	}
	if !child || !grandchild {
		t.Errorf("child %v, grandchild %v in %v", child, grandchild, all)
	}
	parent, children, err := family(1)
	if err != nil || parent != cmd.Process.Pid || len(children) != 1 {
		t.Errorf("got %d, %v, %v", parent, children, err)
	}
}

func TestStockHoldsProcessesBelow(t *testing.T) {
	before, err := takeStock()
	if err != nil {
		t.Fatal(err)
	}
	shell(t)
	after, err := takeStock()
	if err != nil {
		t.Fatal(err)
	}
	if after.processes != before.processes+2 || after.leak(before) == nil {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

//go:build linux && amd64

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// playEnv has the test program be the example.
const playEnv = "EXAMPLE_HOST_TEST_PLAY"

// patience bounds a hang: the first start captures and boots a Python.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAnOperatorSeesAndRemovesTheConversationsOfTheExample(t *testing.T) {
	if p := hosttest.Open(t); p.Name() != "kvm" {
		t.Skipf("the example has micro-VMs, and the tests run on %s", p.Name())
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	short, err := os.MkdirTemp("", "mst") // leaves room for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	dir := filepath.Join(short, "run")

	example := exec.Command(os.Args[0])
	example.Env = append(os.Environ(), playEnv+"=1", "MAF_SANDBOX_TUI_RUNTIME_DIR="+dir, "MAF_SANDBOX_CACHE="+filepath.Join(t.TempDir(), "cache"))
	var stderr bytes.Buffer
	example.Stderr = &stderr
	stdout, err := example.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(patience, func() { _ = example.Process.Kill() }) // ends the reads below
	defer hang.Stop()
	lines := bufio.NewScanner(stdout)
	says := func(want ...string) {
		t.Helper()
		for _, line := range want {
			if !lines.Scan() || lines.Text() != line {
				_ = example.Process.Kill()
				t.Fatalf("it says %q, want %q\n%s", lines.Text(), line, &stderr)
			}
		}
	}
	says("example/forecast: stdout:", "35", "example/incident: stdout:", "42",
		"now: mst list, mst show ID, mst delete ID, mst purge-thread --scope example --thread forecast; Ctrl-C ends all of it")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hosts, err := control.Discover(ctx, dir)
	if err != nil || len(hosts) != 1 {
		t.Fatalf("discovered %v, %v", hosts, err)
	}
	console := control.Unite(hosts)
	records, err := console.List(ctx)
	if err != nil || len(records) != 2 || records[0].LogicalName() != "example/forecast/analyst" || records[1].LogicalName() != "example/incident/analyst" || records[1].State != control.StateReady {
		t.Fatalf("listed %+v, %v", records, err)
	}
	if result, err := console.Dispose(ctx, records[0].InstanceID, patience); err != nil || result.Status != control.Disposed {
		t.Errorf("dispose: %+v, %v", result, err)
	}
	if left, err := console.List(ctx); err != nil || len(left) != 1 {
		t.Errorf("left: %+v, %v", left, err)
	}
	if purge, err := console.Purge(ctx, "example", "forecast", patience); err != nil || purge.Status != control.Purged || purge.Disposed != 0 {
		t.Errorf("purge: %+v, %v", purge, err)
	}

	if err := example.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	says("example/forecast: 0 disposed of", "example/incident: 1 disposed of")
	if err := example.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("ended with %v, %q", err, &stderr)
	}
	for _, r := range records {
		if _, err := os.Stat("/proc/" + strconv.Itoa(r.ProcessID)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the worker %d is still there: %v", r.ProcessID, err)
		}
	}
	if left, err := control.Manifests(dir); err != nil || len(left) != 0 {
		t.Errorf("still announced: %+v, %v", left, err)
	}
}
